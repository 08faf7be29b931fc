"""The pictures of the leaderboard's examples: test images from the dataset, adversarial ones from beside the database."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.api import BenchError
from bench.data import datasets
from bench.evaluation import images
from bench.store.outcomes import ImageFile


class KeptPictures:
    """Pictures of one database. What is not there (any more) has no picture; `bench verify` says what is wrong with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._adversarial = functools.lru_cache(maxsize=64)(self._load)

    def clean(self, dataset: str, sha256: str, count: int) -> tuple[np.ndarray, Sequence[str]] | None:
        """The images (N×H×W×3, uint8) of a board's examples, if the dataset here still has exactly those."""
        try:
            found = datasets.load(dataset)
            examples = found.examples(count)
        except BenchError:
            return None
        return (examples.images, found.classes) if examples.fingerprint == sha256 else None

    def adversarial(self, file: ImageFile) -> np.ndarray | None:
        """The images (n×H×W×3, float32) of a shard, unless they were discarded or changed."""
        return self._adversarial(file)

    def _load(self, file: ImageFile) -> np.ndarray | None:
        try:
            return images.load(self._folder, file.name, file.sha256)
        except BenchError:
            return None
