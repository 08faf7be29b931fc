"""The example explorer's data: small scripts and picture sheets that a page loads as it needs them, also from file://.

A browser does not let a page from file:// fetch data, but it loads scripts: each file calls a function of the page.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bench.store.outcomes import ImageFile, Outcomes
from bench.store.queries import Board
from leaderboard import evidence
from leaderboard.output import Folder
from leaderboard.pictures import as_bytes, png

CHUNK = 100  # examples per data file, and pictures per sheet
SHEET_COLUMNS = 10
UNKNOWN_MARGIN = -32768


class Pictures(Protocol):
    """Where pictures come from, if they are there: the test images, and what the attacks made of them."""

    def clean(self, dataset: str, sha256: str, count: int) -> tuple[np.ndarray, Sequence[str]] | None:
        """The images (N×H×W×3, uint8) of a board's examples and the names of their classes."""

    def adversarial(self, file: ImageFile) -> np.ndarray | None:
        """The adversarial images (n×H×W×3, float32) of a file."""


def write(
    folder: Folder,
    board: Board,
    outcomes: Outcomes,
    files: dict[tuple[int, int], list[ImageFile]],
    clean: tuple[np.ndarray, Sequence[str]] | None,
    pictures: Pictures | None,
    most_pictures: int,
    sheets: str,
) -> None:
    """Everything the explorer of a board loads. `sheets` is where the sheets of its clean images are."""
    shown = evidence.shown_cells(outcomes)
    place, scales = f"examples/board-{board.id}", list[float]()
    size = (0, 0)
    if clean is not None:
        size = (clean[0].shape[1], clean[0].shape[2])
        if pictures is not None:
            scales = _adversarial_sheets(folder, place, outcomes, shown, files, clean[0], pictures, most_pictures)
    index = _index(board, outcomes, shown) | {
        "classes": _class_names(outcomes, clean[1] if clean else ()),
        "clean_sheets": sheets if clean is not None else None,
        "sheets": f"board-{board.id}",
        "height": size[0],
        "width": size[1],
        "magnified": scales,
    }
    folder.data(f"{place}/index.js", _call("benchIndex", index))
    for start in range(0, board.n_examples, CHUNK):
        part = slice(start, start + CHUNK)
        chunk = {"pred": _text(outcomes.pred[part].astype("<i2")), "margin": _text(_hundredths(outcomes, part))}
        folder.data(f"{place}/{start // CHUNK:05d}.js", _call("benchChunk", start // CHUNK, chunk))


def clean_sheets(folder: Folder, place: str, images: np.ndarray) -> None:
    """The test images, one sheet per chunk."""
    for start in range(0, len(images), CHUNK):
        folder.data(f"{place}/{start // CHUNK:05d}.png", sheet(images[start : start + CHUNK]))


def sheet(images: np.ndarray) -> bytes:
    """Images (n×H×W×3, uint8) side by side in rows of ten, as a PNG."""
    count, height, width, _ = images.shape
    rows = -(-CHUNK // SHEET_COLUMNS)
    grid = np.zeros((rows, SHEET_COLUMNS, height, width, 3), np.uint8)
    grid.reshape(-1, height, width, 3)[:count] = images
    return png(grid.transpose(0, 2, 1, 3, 4).reshape(rows * height, SHEET_COLUMNS * width, 3), 6)


def _index(board: Board, outcomes: Outcomes, shown: np.ndarray) -> dict[str, Any]:
    """What the cards and the filters need: of an example its label, its clean answer, and the cell it shows."""
    everyone = np.arange(board.n_examples)
    columns = np.maximum(shown, 0)
    right = outcomes.clean if outcomes.clean is not None else np.ones(board.n_examples, bool)
    broken = ~outcomes.correct & (outcomes.pred >= 0) & right[:, None]
    names, has_cells = evidence.names(outcomes), bool(outcomes.cells)
    return {
        "n": board.n_examples,
        "chunk": CHUNK,
        "columns": SHEET_COLUMNS,
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
            }
            for column, cell in enumerate(outcomes.cells)
        ],
    }


def _adversarial_sheets(
    folder: Folder,
    place: str,
    outcomes: Outcomes,
    shown: np.ndarray,
    files: dict[tuple[int, int], list[ImageFile]],
    clean: np.ndarray,
    pictures: Pictures,
    most: int,
) -> list[float]:
    """Sheets of adversarial images and of their magnified differences; returns how much each is magnified, 0 if absent."""
    count = min(most, len(clean))
    factors: list[float] = []
    for start in range(0, count, CHUNK):
        stop = min(start + CHUNK, count)
        original = clean[start:stop].astype(np.float32) / 255
        adversarial, found = _gathered(outcomes, shown, files, start, stop, original, pictures)
        difference = adversarial - original
        largest = np.abs(difference).max(axis=(1, 2, 3))
        factor = np.where(found & (largest > 0), 127 / 255 / np.maximum(largest, 1e-9), 0.0)
        magnified = np.clip(np.rint(128 + 255 * difference * factor[:, None, None, None]), 0, 255)
        factors += [round(float(f), 1) if ok else 0.0 for f, ok in zip(factor, found, strict=True)]
        if found.any():
            name = f"{place}/{start // CHUNK:05d}"
            folder.data(f"{name}-adversarial.png", sheet(as_bytes(adversarial)))
            folder.data(f"{name}-difference.png", sheet(magnified.astype(np.uint8)))
    return factors


def _gathered(
    outcomes: Outcomes,
    shown: np.ndarray,
    files: dict[tuple[int, int], list[ImageFile]],
    start: int,
    stop: int,
    original: np.ndarray,
    pictures: Pictures,
) -> tuple[np.ndarray, np.ndarray]:
    """Of examples start to stop, the adversarial image of the cell that is shown for each, and whether it was kept."""
    images, found = original.copy(), np.zeros(stop - start, bool)
    for column in np.unique(shown[start:stop]):
        if column < 0:
            continue
        cell = outcomes.cells[column]
        for file in files.get((cell.attack_id, cell.source_id), ()):
            own = np.flatnonzero(shown[start:stop] == column) + start
            own = own[(own >= file.start) & (own < file.stop)]
            stored = pictures.adversarial(file) if len(own) else None
            if stored is not None and stored.shape[1:] == original.shape[1:]:
                images[own - start], found[own - start] = stored[own - file.start], True
    return images, found


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
