"""What the queries give as tables: the same rows for `bench results`, the CSV and JSON files, and the pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.store import coverage, row_format, schema
from bench.store.coverage import Coverage
from bench.store.key_worth import Left
from bench.store.queries import Board, Cell
from bench.store.schema import CLEAN
from bench.support.stats import lost, wilson


def boards_frame(boards: Iterable[Board]) -> pd.DataFrame:
    """One row per board. Accuracies are in percent; an unknown one is empty."""
    found = pd.DataFrame([_board_row(board) for board in boards], columns=list(_BOARD_COLUMNS))
    return found.astype({"covered": "Int64", "required": "Int64"})  # whole numbers, also where some are not known


def cells_frame(boards: Iterable[Board]) -> pd.DataFrame:
    """One row per cell, the unperturbed images first."""
    rows = [
        _cell_row(board, cell) for board in boards for cell in ((board.clean,) if board.clean else ()) + board.cells
    ]
    return pd.DataFrame(rows, columns=list(_CELL_COLUMNS)).astype({"survive_rounding": "Int64"})


def examples_frame(database: Database, boards: Iterable[Board]) -> pd.DataFrame:
    """One row per example and cell, the unperturbed images first: every answer of the defended model."""
    result = schema.result.c
    query = sa.select(result.attack_id, result.source_id, result.example_idx, *(result[name] for name in _ANSWER))
    frames = []
    with database.connect() as connection:
        for board in boards:
            frame = pd.read_sql(query.where(result.board_id == board.id), connection)
            order = ((board.clean,) if board.clean else ()) + board.cells
            places = {(cell.attack_id, cell.source_id): place for place, cell in enumerate(order)}
            cells = [places.get(own, -1) for own in zip(frame["attack_id"], frame["source_id"], strict=True)]
            frame = frame.assign(
                cell=cells, defence=board.defence, norm=board.norm, epsilon=board.epsilon, example=frame["example_idx"],
                attack=[order[place].attack if place >= 0 else CLEAN for place in cells],
                source=[order[place].source if place >= 0 else CLEAN for place in cells],
            )  # fmt: skip
            frames.append(frame.sort_values(["cell", "example"])[list(_EXAMPLE_COLUMNS)])
    found = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(_EXAMPLE_COLUMNS))
    return found.astype({"correct": bool, "source_success": bool, "rounded": "boolean"})


def doubts_frame(boards: Iterable[Board]) -> pd.DataFrame:
    """One row per doubt about a cell, with what it means."""
    rows = [
        {"defence": board.defence, "norm": board.norm, "attack": cell.attack, "source": cell.source, "doubt": doubt,
         "meaning": meaning}
        for board in boards
        for cell in board.cells
        for doubt, meaning in cell.doubts.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["defence", "norm", "attack", "source", "doubt", "meaning"])


def health_frame(boards: Iterable[Board]) -> pd.DataFrame:
    """One row per source and check of it: on how many examples, how many of them show the flag, whether that is a doubt."""
    rows = [
        {"board": board.id, "defence": board.defence, "norm": board.norm, "epsilon": board.epsilon, "source": source,
         "check": name, "found": found.flags.get(name, 0), "examined": count,
         "doubt": found.is_doubt(name), "seconds": round(found.seconds, 3)}
        for board in boards
        for source, found in board.health_by_name.items()
        for name, count in found.examined.items()
    ]  # fmt: skip
    columns = ["board", "defence", "norm", "epsilon", "source", "check", "found", "examined", "doubt", "seconds"]
    return pd.DataFrame(rows, columns=columns)


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
            "accuracy_on_source": None
            if cell.on_survivors
            else percent(withstood[board.id, cell.attack_id, cell.source_id] / cell.n_done),
            "reduced": cell.reduced,
            "scope": cell.scope,
            "broken": cell.broken,
            "broken_on_source": cell.n_done - withstood[board.id, cell.attack_id, cell.source_id],
        }
        for board in boards
        for cell in board.cells
        if cell.n_done
    ]
    columns = [
        "defence",
        "norm",
        "epsilon",
        "attack",
        "source",
        "examples",
        "accuracy",
        "accuracy_on_source",
        "reduced",
        "scope",
        "broken",
        "broken_on_source",
    ]
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
    "reduced",
    "best_known_is",
    "coverage",
    "covered",
    "required",
    "required_by",
    "required_imported",
    "missing",
    "best_known_rounded",
    "best_known_rounded_low",
    "best_known_rounded_high",
    *(
        f"{name}{end}"
        for name in ("key_leaked", "key_worth", "queried", "query_worth")
        for end in ("", "_low", "_high")
    ),
    "key_leaked_reduced",
    "queried_reduced",
    "scope",
    "best_adversary_least",
    "best_adversary_most",
)
_ANSWER = row_format.columns(row_format.newest())[1:]  # without the example's place
_EXAMPLE_COLUMNS = ("defence", "norm", "epsilon", "attack", "source", "example", *_ANSWER)
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
    "reduced",
    "examined",
    "rounded_accuracy",
    "rounded_low",
    "rounded_high",
    "survive_rounding",
    "scope",
    "broken",
    "accuracy_least",
    "accuracy_most",
)


def _board_row(board: Board) -> dict[str, Any]:
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
        **_share("best_known", board.best_known, board.n_examples),
        "best_adversary": {name: percent(count / board.n_examples) for name, count in board.best_adversary.items()},
        "cells": len(board.counted),
        "left_out": len(board.left_out),
        "partial": board.partial,
        "preset": board.preset,
        "updated": board.updated,
        "reduced": len(board.reduced),
        "best_known_is": coverage.BOUND,
        **_coverage(board.coverage),
        **_share("best_known_rounded", board.best_known_rounded, board.n_examples),
        **_worth(board, "key_leaked", "key_worth", board.key_worth.leaked if board.key_worth else None),
        **_worth(board, "queried", "query_worth", board.key_worth.queried if board.key_worth else None),
        "scope": board.scope,
        "best_adversary_least": {
            name: percent(bounds.least / board.n_examples) for name, bounds in board.adversaries.items()
        },
        "best_adversary_most": {
            name: percent(bounds.most / board.n_examples) for name, bounds in board.adversaries.items()
        },
    }


def _coverage(found: Coverage | None) -> dict[str, Any]:
    """How many of the required cells a board has, by whose word, and which are missing; empty where it is not known."""
    return {
        "coverage": coverage.said(found),
        "covered": len(found.covered) if found else None,
        "required": len(found.required.pairs) if found else None,
        "required_by": found.required.preset if found else None,
        "required_imported": found.required.imported if found else None,
        "missing": list(found.missing) if found else None,
    }


def _worth(board: Board, left_name: str, lost_name: str, left: Left | None) -> dict[str, float | None]:
    """What is left of Best Known with more than the threat model allows, and how much less that is, in points."""
    known, total = board.best_known, board.n_examples
    if known is None or left is None:
        return {**_share(left_name, None, total), **_share(lost_name, None, total), f"{left_name}_reduced": None}
    low, high = lost(known, left.n_correct, total)
    return {
        **_share(left_name, left.n_correct, total),
        lost_name: percent((known - left.n_correct) / total),
        f"{lost_name}_low": percent(low),
        f"{lost_name}_high": percent(high),
        f"{left_name}_reduced": left.reduced,
    }


def _cell_row(board: Board, cell: Cell) -> dict[str, Any]:
    low, high = (None, None) if cell.accuracy is None else wilson(cell.n_correct, cell.n_done)
    rounded = None if cell.accuracy is None else cell.rounded
    bounds = wilson(rounded.n_correct, rounded.n_done) if rounded else (None, None)
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
        "reduced": cell.reduced,
        "examined": cell.examined,
        "rounded_accuracy": percent(rounded.n_correct / rounded.n_done if rounded else None),
        "rounded_low": percent(bounds[0]),
        "rounded_high": percent(bounds[1]),
        "survive_rounding": rounded.survive if rounded else None,
        "scope": cell.scope,
        "broken": cell.broken,
        "accuracy_least": percent(cell.bounds.least / board.n_examples),
        "accuracy_most": percent(cell.bounds.most / board.n_examples),
    }


def _share(name: str, count: int | None, total: int) -> dict[str, float | None]:
    """A count of examples in percent, with its 95 % interval; nothing where it is not known."""
    low, high = wilson(count, total) if count is not None else (None, None)
    share = count / total if count is not None else None
    return {name: percent(share), f"{name}_low": percent(low), f"{name}_high": percent(high)}


def percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)
