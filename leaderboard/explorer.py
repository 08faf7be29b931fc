"""The example explorer's data: small scripts that a page loads as it needs them, also from file://.

A browser does not let a page from file:// fetch data, but it loads scripts: each file calls a function of the page.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.store import evidence
from bench.store.outcomes import Outcomes
from bench.store.queries import Board
from leaderboard.output import Folder
from leaderboard.sheets import CHUNK, COLUMNS, Files, Sheets

UNKNOWN_MARGIN = -32768


def write(
    site: Folder, sheets: Sheets, board: Board, outcomes: Outcomes, dataset: str, sha256: str, files: Files
) -> None:
    """Everything the explorer of a board loads; its examples are those of the dataset with this digest."""
    shown, folder = evidence.shown_cells(outcomes), f"board-{board.id}"
    clean = sheets.clean(dataset, sha256, board.n_examples)
    factors = sheets.adversarial(f"examples/{folder}", clean.images, outcomes, shown, files) if clean else []
    index = _index(board, outcomes, shown) | {
        "classes": _class_names(outcomes, clean.classes if clean else ()),
        "clean_sheets": clean.folder if clean else None,
        "sheets": folder,
        "height": clean.images.shape[1] if clean else 0,
        "width": clean.images.shape[2] if clean else 0,
        "magnified": factors,
    }
    site.data(f"examples/{folder}/index.js", _call("benchIndex", index))
    for start in range(0, board.n_examples, CHUNK):
        part = slice(start, start + CHUNK)
        chunk = {"pred": _text(outcomes.pred[part].astype("<i2")), "margin": _text(_hundredths(outcomes, part))}
        site.data(f"examples/{folder}/{start // CHUNK:05d}.js", _call("benchChunk", start // CHUNK, chunk))


def _index(board: Board, outcomes: Outcomes, shown: np.ndarray) -> dict[str, Any]:
    """What the cards and the filters need: of an example its label, its clean answer, and the cell it shows."""
    everyone = np.arange(board.n_examples)
    columns = np.maximum(shown, 0)
    right = outcomes.clean if outcomes.clean is not None else np.ones(board.n_examples, bool)
    broken = outcomes.wrong & right[:, None]
    names, has_cells = evidence.names(outcomes), bool(outcomes.cells)
    return {
        "n": board.n_examples,
        "chunk": CHUNK,
        "columns": COLUMNS,
        "has_clean": outcomes.clean is not None,
        "labels": _text(outcomes.labels.astype("<i2")),
        "clean": _text((outcomes.pred[:, 0] if outcomes.clean is not None else outcomes.labels).astype("<i2")),
        "shown_cell": _text(shown.astype("<i2")),
        "shown_pred": _text(outcomes.pred[everyone, columns].astype("<i2")) if has_cells else "",
        "shown_margin": _text(_hundredths(outcomes, slice(None))[everyone, columns]) if has_cells else "",
        "cells": [
            {
                "name": names[column],
                "inside": cell.inside_threat_model,
                "done": cell.status == "done",
                "clean": bool(outcomes.clean is not None and column == 0),
                "broken": _text(np.packbits(broken[:, column], bitorder="little")),
                "breaks": int(broken[:, column].sum()),
                "survivors": cell.on_survivors,
                "shown": int((outcomes.shown[:, column] & right).sum()),
            }
            for column, cell in enumerate(outcomes.cells)
        ],
    }


def _class_names(outcomes: Outcomes, names: Sequence[str]) -> list[str]:
    highest = max(int(outcomes.labels.max(initial=0)), int(outcomes.pred.max(initial=0)))
    return [names[i] if i < len(names) else f"class {i}" for i in range(highest + 1)]


def _hundredths(outcomes: Outcomes, part: slice) -> np.ndarray:
    """Margins as 16-bit hundredths."""
    margin = np.clip(np.rint(outcomes.margin[part] * 100), -32767, 32767)
    return np.where(outcomes.pred[part] < 0, UNKNOWN_MARGIN, margin).astype("<i2")


def _text(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _call(function: str, *arguments: Any) -> bytes:
    """A script that hands JSON to a function of the page."""
    return f"{function}({','.join(json.dumps(a) for a in arguments)});\n".encode()
