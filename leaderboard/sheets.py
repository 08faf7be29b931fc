"""The picture sheets of the example explorers: test images, adversarial images, and their differences, magnified."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from bench.store.outcomes import ImageFile, Outcomes
from leaderboard.output import Folder
from leaderboard.pictures import as_bytes, png

CHUNK = 100
"""Pictures per sheet."""
COLUMNS = 10

Files = Mapping[tuple[int, int], Sequence[ImageFile]]
"""The files of adversarial images by attack and source id."""


class Pictures(Protocol):
    """Where pictures come from, if they are there: the test images, and what the attacks made of them."""

    def clean(self, dataset: str, sha256: str, count: int) -> tuple[np.ndarray, Sequence[str]] | None:
        """The images (N×H×W×3, uint8) of a board's examples and the names of their classes."""

    def adversarial(self, file: ImageFile) -> np.ndarray | None:
        """The adversarial images (n×H×W×3, float32) of a file."""


@dataclasses.dataclass(frozen=True)
class Clean:
    """The test images of a board, and where their sheets are."""

    images: np.ndarray  # N×H×W×3, uint8
    classes: Sequence[str]
    folder: str


class Sheets:
    """Writes the sheets of a site; boards on the same examples share those of the test images."""

    def __init__(self, site: Folder, pictures: Pictures | None, most: int) -> None:
        self._site, self._pictures, self._most = site, pictures, most
        self._clean: dict[str, Clean | None] = {}

    def clean(self, dataset: str, sha256: str, count: int) -> Clean | None:
        """The test images of these examples, if they are there."""
        if sha256 not in self._clean:
            found = self._pictures.clean(dataset, sha256, count) if self._pictures else None
            self._clean[sha256] = Clean(*found, f"images-{sha256[:12]}") if found else None
            if found is not None:
                for start in range(0, len(found[0]), CHUNK):
                    name = f"examples/images-{sha256[:12]}/{start // CHUNK:05d}.png"
                    self._site.data(name, sheet(found[0][start : start + CHUNK]))
        return self._clean[sha256]

    def adversarial(
        self, folder: str, clean: np.ndarray, outcomes: Outcomes, shown: np.ndarray, files: Files
    ) -> list[float]:
        """Sheets of the adversarial images and their differences; returns how much each is magnified, 0 if absent.

        `shown` is the cell of every example that is shown (N, −1 for none); only so many examples have pictures.
        """
        factors: list[float] = []
        count = min(self._most, len(clean))
        for start in range(0, count, CHUNK):
            part = slice(start, min(start + CHUNK, count))
            original = clean[part].astype(np.float32) / 255
            adversarial, found = self._gathered(original, part, outcomes, shown, files)
            difference = adversarial - original
            largest = np.abs(difference).max(axis=(1, 2, 3))
            factor = np.where(found & (largest > 0), 127 / 255 / np.maximum(largest, 1e-9), 0.0)
            magnified = np.clip(np.rint(128 + 255 * difference * factor[:, None, None, None]), 0, 255)
            factors += [round(float(f), 1) if ok else 0.0 for f, ok in zip(factor, found, strict=True)]
            if found.any():
                name = f"{folder}/{start // CHUNK:05d}"
                self._site.data(f"{name}-adversarial.png", sheet(as_bytes(adversarial)))
                self._site.data(f"{name}-difference.png", sheet(magnified.astype(np.uint8)))
        return factors

    def _gathered(
        self, original: np.ndarray, part: slice, outcomes: Outcomes, shown: np.ndarray, files: Files
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of some examples, the adversarial image of the cell that is shown for each, and whether it was kept."""
        images, found = original.copy(), np.zeros(len(original), bool)
        for column in np.unique(shown[part]):
            if column < 0 or self._pictures is None:
                continue
            cell = outcomes.cells[column]
            for file in files.get((cell.attack_id, cell.source_id), ()):
                own = np.flatnonzero(shown[part] == column) + part.start
                own = own[np.isin(own, file.examples)]
                stored = self._pictures.adversarial(file) if len(own) else None
                if stored is not None and stored.shape == (len(file.examples), *original.shape[1:]):
                    places = np.searchsorted(file.examples, own)
                    images[own - part.start], found[own - part.start] = stored[places], True
        return images, found


def sheet(images: np.ndarray) -> bytes:
    """Images (n×H×W×3, uint8) side by side in rows of ten, as a PNG."""
    count, height, width, _ = images.shape
    rows = -(-CHUNK // COLUMNS)
    grid = np.zeros((rows, COLUMNS, height, width, 3), np.uint8)
    grid.reshape(-1, height, width, 3)[:count] = images
    return png(grid.transpose(0, 2, 1, 3, 4).reshape(rows * height, COLUMNS * width, 3), 6)
