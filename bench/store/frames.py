"""What the queries give as tables: the same rows for `bench results`, the CSV and JSON files, and the pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from bench.store.queries import Board, Cell
from bench.support.stats import wilson


def boards_frame(boards: Iterable[Board]) -> pd.DataFrame:
    """One row per board. Accuracies are in percent; an unknown one is empty."""
    return pd.DataFrame([_board_row(board) for board in boards], columns=list(_BOARD_COLUMNS))


def cells_frame(boards: Iterable[Board]) -> pd.DataFrame:
    """One row per cell, the unperturbed images first."""
    rows = [
        _cell_row(board, cell) for board in boards for cell in ((board.clean,) if board.clean else ()) + board.cells
    ]
    return pd.DataFrame(rows, columns=list(_CELL_COLUMNS))


def sources_frame(boards: Iterable[Board], withstood: Mapping[tuple[int, int, int], int]) -> pd.DataFrame:
    """One row per cell: its accuracy on the defended model, and on the source it attacked, over the same examples."""
    rows = [
        {
            "defence": board.defence,
            "norm": board.norm,
            "epsilon": board.epsilon,
            "attack": cell.attack,
            "source": cell.source,
            "examples": cell.n_done,
            "accuracy": percent(cell.accuracy),
            "accuracy_on_source": percent(withstood[board.id, cell.attack_id, cell.source_id] / cell.n_done),
        }
        for board in boards
        for cell in board.cells
        if cell.n_done
    ]
    columns = ["defence", "norm", "epsilon", "attack", "source", "examples", "accuracy", "accuracy_on_source"]
    return pd.DataFrame(rows, columns=columns)


_BOARD_COLUMNS = (
    "board",
    "defence",
    "settings",
    "keyed",
    "key_id",
    "dataset",
    "norm",
    "epsilon",
    "examples",
    "clean",
    "best_known",
    "best_known_low",
    "best_known_high",
    "best_adversary",
    "cells",
    "left_out",
    "partial",
    "preset",
    "updated",
)
_CELL_COLUMNS = (
    "board",
    "defence",
    "norm",
    "epsilon",
    "attack",
    "attack_settings",
    "source",
    "strategy",
    "inside_threat_model",
    "status",
    "examples",
    "of",
    "correct",
    "accuracy",
    "low",
    "high",
    "gradients",
    "queries",
    "seconds",
    "flags",
    "doubts",
    "error",
    "imported",
)


def _board_row(board: Board) -> dict[str, Any]:
    known = board.best_known
    low, high = wilson(known, board.n_examples) if known is not None else (None, None)
    return {
        "board": board.id,
        "defence": board.defence,
        "settings": board.defence_settings,
        "keyed": board.keyed,
        "key_id": board.key_id,
        "dataset": board.dataset,
        "norm": board.norm,
        "epsilon": board.epsilon,
        "examples": board.n_examples,
        "clean": percent(board.clean.accuracy if board.clean else None),
        "best_known": percent(known / board.n_examples if known is not None else None),
        "best_known_low": percent(low),
        "best_known_high": percent(high),
        "best_adversary": {name: percent(count / board.n_examples) for name, count in board.best_adversary.items()},
        "cells": len(board.counted),
        "left_out": len(board.left_out),
        "partial": board.partial,
        "preset": board.preset,
        "updated": board.updated,
    }


def _cell_row(board: Board, cell: Cell) -> dict[str, Any]:
    low, high = wilson(cell.n_correct, cell.n_done) if cell.n_done else (None, None)
    return {
        "board": board.id,
        "defence": board.defence,
        "norm": board.norm,
        "epsilon": board.epsilon,
        "attack": cell.attack,
        "attack_settings": cell.attack_settings,
        "source": cell.source,
        "strategy": cell.strategy,
        "inside_threat_model": cell.inside_threat_model,
        "status": cell.status,
        "examples": cell.n_done,
        "of": board.n_examples,
        "correct": cell.n_correct,
        "accuracy": percent(cell.accuracy),
        "low": percent(low),
        "high": percent(high),
        "gradients": cell.gradients,
        "queries": cell.queries,
        "seconds": round(cell.seconds, 3),
        "flags": cell.flags,
        "doubts": cell.doubts,
        "error": cell.error,
        "imported": cell.imported,
    }


def percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)
