"""What a run does next: which examples of which cell, by what is stored, broken and failed. Pure: no store, no clock.

Under the scope `all` every cell is shown every example. Under `survivors` the first cell is, that of the unperturbed
images; then an example goes through the cells in their order until the referee has seen it broken, and through none of
the rest. What is outside the threat model is shown what has gone through all the others and stands. So an example's way
depends on that example alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from bench.store.schema import SURVIVORS


@dataclasses.dataclass(frozen=True)
class Work:
    """Examples (in their order) of one cell, by its place, to be attacked at once."""

    cell: int
    examples: tuple[int, ...]


class BoardSchedule:
    """The cells of one board in the order that examples go through them, and how far each example is."""

    def __init__(self, n_examples: int, inside: Sequence[bool], scope: str) -> None:
        """`inside` says of each cell whether it is inside the threat model, and so breaks what it finds wrong."""
        self._inside, self._survivors = tuple(inside), scope == SURVIVORS
        shape = (len(self._inside), n_examples)
        self._stored, self._failed, self._in_hand, self._elsewhere = (np.zeros(shape, bool) for _ in range(4))
        self._broken = np.zeros(n_examples, bool)

    def refresh(self, stored: Sequence[Collection[int]], broken: Collection[int]) -> None:
        """Takes over what the store says: which examples each cell has rows of, and which do not stand any more."""
        self._elsewhere[:] = False
        for cell, examples in enumerate(stored):
            self._stored[cell] = False
            self._stored[cell, list(examples)] = True
        self._broken[:] = False
        self._broken[list(broken)] = True

    def next(self, cells: Collection[int], size: int) -> Work | None:
        """What of these cells to do next, at most so many examples: as many as there are, else of the earliest cell."""
        best: Work | None = None
        for cell in sorted(cells):
            ready = np.flatnonzero(self._ready(cell))[:size]
            if len(ready) > (len(best.examples) if best else 0):
                best = Work(cell, tuple(ready.tolist()))
                if len(ready) == size:
                    break
        return best

    def taken(self, work: Work, free: Collection[int]) -> None:
        """The free ones of the examples are in hand; the others are stored by somebody else, or in their hands."""
        self._in_hand[work.cell, list(free)] = True
        self._elsewhere[work.cell, sorted(set(work.examples).difference(free))] = True

    def finished(self, cell: int, examples: Sequence[int], wrong: Sequence[int]) -> None:
        """The examples are stored; these of them are wrong."""
        self._in_hand[cell, list(examples)] = False
        self._stored[cell, list(examples)] = True
        if self._inside[cell]:
            self._broken[list(wrong)] = True

    def lost(self, cell: int, examples: Sequence[int]) -> None:
        """Somebody else has stored some of the examples meanwhile: what the store has now decides."""
        self._in_hand[cell, list(examples)] = False
        self._elsewhere[cell, list(examples)] = True

    def failed(self, cell: int, examples: Sequence[int]) -> None:
        """The attack on these examples failed: they go on without it."""
        self._in_hand[cell, list(examples)] = False
        self._failed[cell, list(examples)] = True

    def give_up(self, cell: int) -> None:
        """Examples go on without what is left of the cell."""
        self._failed[cell] |= ~self._stored[cell]

    def waiting(self, cells: Collection[int]) -> bool:
        """Whether something of these cells is in others' hands."""
        return any((self._elsewhere[cell] & self._wanted(cell)).any() for cell in cells)

    def left(self, cell: int) -> np.ndarray:
        """Which examples (N, bool) may still go through the cell, as far as is known."""
        return np.asarray(self._wanted(cell) & ~self._failed[cell])

    def expected(self, shares: Sequence[float]) -> list[float]:
        """How many examples each cell is still expected to be shown; `shares` are what is expected to stand before each.

        An example that has come as far as one cell reaches a later one in the proportion of their shares.
        """
        left = np.stack([self.left(cell) for cell in range(len(self._inside))])
        if not self._survivors:
            return [float(count) for count in left.sum(axis=1)]
        standing = np.maximum(np.asarray(shares, float), 1e-6)
        here = np.where(left.any(axis=0), standing[left.argmax(axis=0)], 1.0)
        return [float((left[cell] * np.minimum(share / here, 1.0)).sum()) for cell, share in enumerate(standing)]

    def complete(self, cell: int) -> bool:
        """Whether the cell has a row of every example that it needs."""
        return not self._wanted(cell).any()

    def shown(self, cell: int) -> int:
        """How many examples the cell has rows of."""
        return int(self._stored[cell].sum())

    def _wanted(self, cell: int) -> np.ndarray:
        """The examples (N, bool) that the cell has no row of and needs one of."""
        missing = ~self._stored[cell]
        return np.asarray(missing & ~self._broken if self._survivors and cell else missing)

    def _ready(self, cell: int) -> np.ndarray:
        ready = self.left(cell) & ~self._in_hand[cell] & ~self._elsewhere[cell]
        if self._survivors:
            before = [place for place in self._before(cell) if place != cell]
            ready &= (self._stored[before] | self._failed[before]).all(axis=0)
        return np.asarray(ready)

    def _before(self, cell: int) -> list[int]:
        places = range(cell) if self._inside[cell] else range(len(self._inside))
        return [place for place in places if self._inside[place]]
