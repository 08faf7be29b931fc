"""What an attack has found and spent so far, example by example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from attacks.parts.observed import Observed
from bench.api import Attacked, flags

Keep = Literal["best-margin", "first-success"]
"""Which of several adversarial images of an example is kept: that of the best margin, or the first to succeed."""
AsSource = Literal["auto", "first-success", "best-margin"]
"""The same, or `auto`: the first success where the source is the defended model, and the best margin where it is not."""


class Ledger:
    """The record of N examples under attack: at first the clean images themselves."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, logits: np.ndarray, keep: Keep) -> None:
        count = len(images)
        self.keep = keep
        self.images = np.array(images, dtype=np.float32)
        self.margin = clean_margin(logits, labels)
        self.restart = np.full(count, -1, np.int32)
        self.target = np.full(count, -1, np.int32)
        self.gradients = np.zeros(count, np.int64)
        self.queries = np.ones(count, np.int64)
        self.part: np.ndarray | None = None  # N, int32: which part of an attack in several found the images
        self._evaluations = np.zeros(count, np.int64)
        self._zero = np.zeros(count, np.int64)
        self._non_finite = np.zeros(count, np.int64)
        self._moved = np.zeros(count, bool)
        self._asked = np.zeros(count, np.int64)  # losses seen by searches without gradients
        self._moved_by_search = np.zeros(count, bool)
        self._flagged: dict[str, np.ndarray] = flags_of_logits(logits)

    @property
    def success(self) -> np.ndarray:
        """Which examples the source misclassifies by now: N, bool."""
        return self.margin < 0

    def offer(
        self, rows: np.ndarray, images: np.ndarray, margin: np.ndarray, restart: int, target: np.ndarray | None = None
    ) -> None:
        """Takes the images (n×H×W×C) of the examples `rows` (n, int) where they are better than what is there."""
        better = margin < self.margin[rows]
        if self.keep == "first-success":
            better = (margin < 0) & ~self.success[rows]
        taken = rows[better]
        self.images[taken] = images[better]
        self.margin[taken] = margin[better]
        self.restart[taken] = restart
        self.target[taken] = -1 if target is None else target[better]

    def spend(self, rows: np.ndarray, gradients: int = 0, queries: int | np.ndarray = 0) -> None:
        """Counts what each of the examples `rows` has cost."""
        self.gradients[rows] += gradients
        self.queries[rows] += queries

    def note(self, rows: np.ndarray, observed: Observed) -> None:
        """Takes note of what the gradients of the examples `rows` looked like during one descent, or search without any."""
        seen, moved = np.asarray(observed.seen), np.asarray(observed.high) > np.asarray(observed.low)
        self._evaluations[rows] += seen
        self._zero[rows] += np.asarray(observed.zero)
        self._non_finite[rows] += np.asarray(observed.non_finite)
        self._moved[rows] |= moved & (seen > 0)
        # Kept apart: that a random search moves the loss says nothing about the gradients.
        self._asked[rows] += np.where(seen > 0, 0, np.asarray(observed.queries))
        self._moved_by_search[rows] |= moved & (seen == 0)

    def merge(self, other: Ledger) -> None:
        """Takes in what another attack on the same examples has found and spent."""
        better = other.margin < self.margin if self.keep == "best-margin" else other.success & ~self.success
        for column in ("images", "margin", "restart", "target"):
            getattr(self, column)[better] = getattr(other, column)[better]
        for column in ("gradients", "queries", "_evaluations", "_zero", "_non_finite", "_asked"):
            getattr(self, column)[:] += getattr(other, column)
        self._moved |= other._moved
        self._moved_by_search |= other._moved_by_search
        self._flagged |= other._flagged

    def flag(self, name: str, mask: np.ndarray) -> None:
        """Raises a flag for the examples of the mask (N, bool)."""
        self._flagged[name] = mask

    def flags(self) -> dict[str, int]:
        """Every flag that concerns an example, with the number of such examples."""
        # One evaluation alone cannot show a movement. A search counts only where there were no gradients.
        still = (self._evaluations > 1) & ~self._moved
        still |= (self._evaluations == 0) & (self._asked > 1) & ~self._moved_by_search
        flagged = {
            **self._flagged,
            flags.ZERO_GRADIENT: (self._evaluations > 0) & (2 * self._zero >= self._evaluations),
            flags.NON_FINITE_GRADIENT: self._non_finite > 0,
            flags.STILL_LOSS: still,
        }
        return {name: int(mask.sum()) for name, mask in flagged.items() if mask.any()}


def flags_of_logits(logits: np.ndarray) -> dict[str, np.ndarray]:
    """The flags that clean logits (N×classes) raise, as masks (N, bool)."""
    probabilities = ((logits >= 0) & (logits <= 1)).all(axis=1) & (np.abs(logits.sum(axis=1) - 1) < 1e-3)
    top = np.sort(logits, axis=1)[:, -2:]
    return {flags.SOFTMAX: probabilities, flags.SATURATED: top[:, -1] - top[:, 0] > flags.SATURATION}


def clean_margin(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """z_y − max other z, on N×classes logits: N."""
    rows = np.arange(len(labels))
    others = np.array(logits, dtype=np.float32)
    own = others[rows, labels].copy()
    others[rows, labels] = -np.inf
    return own - others.max(axis=1, initial=-np.inf)


def joined(ledgers: Sequence[Ledger]) -> Attacked:
    """The result of an engine from the ledgers of its batches, in order."""

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(ledger, name) for ledger in ledgers])

    counts: dict[str, int] = {}
    for ledger in ledgers:
        for name, count in ledger.flags().items():
            counts[name] = counts.get(name, 0) + count
    return Attacked(
        images=column("images"),
        success=column("success"),
        margin=column("margin"),
        restart=column("restart"),
        target=column("target"),
        gradients=column("gradients"),
        queries=column("queries"),
        part=None if ledgers[0].part is None else column("part"),
        flags=counts,
    )
