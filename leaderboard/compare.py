"""Defences side by side, and whether a difference means anything: an exact McNemar test on the same examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench.store.frames import percent
from bench.store.queries import Board
from bench.support.stats import mcnemar
from leaderboard.tables import TableEntry, best_adversary


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A board in a comparison: its page, which examples (N, bool) are right under everything, its Best Adversaries."""

    board: Board
    page: str
    label: str
    known: np.ndarray | None
    strongest: tuple[str, int] | None


@dataclasses.dataclass(frozen=True)
class DefencePair:
    """Two defences on the same examples: how many only the one gets right, only the other, and the test's p."""

    first: Contestant
    second: Contestant
    only_first: int
    only_second: int
    p: float


@dataclasses.dataclass(frozen=True)
class BoardGroup:
    """Boards that may be compared: of one norm, epsilon and set of examples, in the order of boards."""

    norm: str
    epsilon: float
    n_examples: int
    dataset: str
    members: list[Contestant]
    pairs: list[DefencePair]

    @property
    def engines(self) -> list[str]:
        return list(dict.fromkeys(name for member in self.members for name in member.board.adversaries))

    def entry(self, member: Contestant, engine: str) -> TableEntry:
        """Best Adversary of a board."""
        return best_adversary(member.board, engine)


def groups(contestants: Sequence[Contestant]) -> list[BoardGroup]:
    """The boards that may be compared, and every pair of them; groups of one are left out."""
    found: dict[tuple[str, float, str], list[Contestant]] = {}
    for one in contestants:
        if one.known is not None:
            found.setdefault((one.board.norm, one.board.epsilon, one.board.examples_sha256), []).append(one)
    return [
        BoardGroup(norm, epsilon, members[0].board.n_examples, members[0].board.dataset, members, _pairs(members))
        for (norm, epsilon, _), members in found.items()
        if len(members) > 1
    ]


def _pairs(members: Sequence[Contestant]) -> list[DefencePair]:
    pairs = []
    for place, first in enumerate(members):
        for second in members[place + 1 :]:
            assert first.known is not None
            assert second.known is not None
            one, other = int((first.known & ~second.known).sum()), int((second.known & ~first.known).sum())
            pairs.append(DefencePair(first, second, one, other, mcnemar(one, other)))
    return pairs


def pairs_frame(all_groups: Sequence[BoardGroup]) -> pd.DataFrame:
    """Every pair as a row."""
    return pd.DataFrame(
        [
            (
                group.norm, group.epsilon, group.n_examples, pair.first.board.id, pair.first.label, pair.second.board.id,
                pair.second.label, percent((pair.only_first - pair.only_second) / group.n_examples), pair.only_first,
                pair.only_second, pair.p,
            )
            for group in all_groups
            for pair in group.pairs
        ],
        columns=[
            "norm", "epsilon", "examples", "board_a", "a", "board_b", "b", "difference", "only_a_right", "only_b_right",
            "p",
        ],
    )  # fmt: skip
