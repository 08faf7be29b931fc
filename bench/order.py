"""In which order examples go through the attacks of a run on survivors: the cheapest way to Best Known.

The table `order.csv` was measured on training images (`python -m benchmarks.order`): per defence and norm the attacks in
the order in which each breaks most per second of what those before it left, with what is left then. The order of a run
depends on that table and on its plan alone, never on a clock or on what the referee said of test images.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.plan import Pair

TABLE = Path(__file__).with_name("order.csv")


class Measured(NamedTuple):
    """A row of the table: an attack, in its place among those on the same defence in the same norm."""

    defence: str
    norm: str
    engine: str
    source: str
    kind: str
    seconds: float
    """Per image, with judging it."""
    breaks: float
    """Share of the images that are right without a perturbation."""
    left: float
    """The share that this attack and those before it leave."""


@functools.cache
def table() -> tuple[Measured, ...]:
    """All that was measured, in order."""
    with TABLE.open(newline="") as stream:
        return tuple(
            Measured(
                row["defence"], row["norm"], row["engine"], row["source"], row["kind"],
                float(row["seconds"]), float(row["breaks"]), float(row["left"]),
            )
            for row in csv.DictReader(stream)
        )  # fmt: skip


def of(defence: str, norm: str, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs in the order that examples go through them; what is outside the threat model comes last.

    What was not measured comes after what was, in the order of the plan; so does every attack on another defence, but by
    what the same engine breaks per second from the same kind of source elsewhere.
    """
    own = rows(defence, norm)
    last = float("inf")

    def place(pair: Pair) -> tuple[bool, float]:
        if own:
            row = measured(own, pair)
            return not pair.inside_threat_model, last if row is None else own.index(row)
        rate = _rate(norm, pair)
        return not pair.inside_threat_model, last if rate is None else -rate

    return sorted(pairs, key=place)


def rows(defence: str, norm: str) -> list[Measured]:
    """What was measured of a defence in a norm, in order."""
    return [row for row in table() if (row.defence, row.norm) == (defence, norm)]


def measured(own: Sequence[Measured], pair: Pair) -> Measured | None:
    """The row of a pair; of one on a further source of a kind, the last of its kind."""
    engine = [row for row in own if row.engine == pair.engine]
    exact = [row for row in engine if row.source == pair.source]
    alike = [row for row in engine if row.kind == pair.description.kind]
    return exact[0] if exact else alike[-1] if alike else None


def left_before(defence: str, norm: str, pairs: Sequence[Pair]) -> list[float]:
    """The share of images that is expected to stand before each of the pairs, which are in their order."""
    own, found, standing = rows(defence, norm), [], 1.0
    for pair in pairs:
        found.append(standing)
        row = measured(own, pair)
        standing = standing if row is None else min(standing, row.left)
    return found


def cheapest(broken: np.ndarray, right: np.ndarray, seconds: np.ndarray) -> list[tuple[int, float]]:
    """The cells in order, each with the share of the images it leaves.

    `broken` (cells×N, bool), `right` without a perturbation (N, bool), `seconds` per image (cells). Where none breaks any
    more of what is left, what breaks most per second of all comes first.
    """
    found: list[tuple[int, float]] = []
    standing, alone = right.copy(), (broken & right).sum(axis=1) / seconds
    while len(found) < len(broken):
        new = (broken & standing).sum(axis=1) / seconds
        free = [cell for cell in range(len(broken)) if cell not in {known for known, _ in found}]
        best = max(free, key=lambda cell: (new[cell], alone[cell], -cell))
        standing &= ~broken[best]
        found.append((best, float(standing.sum() / max(right.sum(), 1))))
    return found


def _rate(norm: str, pair: Pair) -> float | None:
    """Shares of images broken per second, in the mean over the defences on which the pair was measured."""
    found = [
        row.breaks / row.seconds
        for row in table()
        if (row.norm, row.engine, row.kind) == (norm, pair.engine, pair.description.kind)
    ]
    return sum(found) / len(found) if found else None
