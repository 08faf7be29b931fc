"""The order of boards, on pages and in the terminal, and which of them are shown as one.

Coverage comes first: a number that few attacks had a chance to lower says little, however high it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench import norms
from bench.store import example_sets

if TYPE_CHECKING:
    from bench.store.queries import Board

RULE = (
    "Boards with all the cells that their preset asks for come first, then the others by their share of those, then boards "
    "whose list of cells came with an import, then those of unknown coverage. Among equals, the higher Best Known is first."
)


@dataclasses.dataclass(frozen=True)
class Standing:
    """A board that is shown, and those of the same defended model on fewer or more of the same examples."""

    board: Board
    others: tuple[Board, ...]


def place(board: Board) -> tuple[Any, ...]:
    """What boards are sorted by: norm, epsilon, coverage, and only then Best Known; unknown ones last."""
    known = -1.0 if board.best_known is None else board.best_known / board.n_examples
    return (norms.place(board.norm), board.epsilon, *by_coverage(board), -known, board.defence, board.id)


def by_coverage(board: Board) -> tuple[int, float]:
    """What boards are sorted by as far as coverage goes: the larger share first, somebody else's word after one's own."""
    coverage = board.coverage
    return (2, 0.0) if coverage is None else (int(coverage.required.imported), -coverage.share)


def why(board: Board) -> str:
    """Why a board stands where it does, in a sentence."""
    coverage = board.coverage
    if coverage is None:
        return "Stands last: it is not known which cells it should have."
    if coverage.required.imported:
        return "Stands after boards that were planned here: which cells it should have is the word of an import."
    if coverage.complete:
        return "Stands among the first, which have every required cell, by Best Known."
    left = len(coverage.missing)
    missing = "the missing one" if left == 1 else f"the {left} missing ones"
    return f"Stands after boards with a larger share of their cells: {missing} can only lower its number."


def shown(boards: Sequence[Board], digests: dict[str, bytes]) -> list[Standing]:
    """Boards in their order, where those on the first examples of each other are one: the one with the most coverage, and
    of such the one with the most examples."""
    found: dict[int, list[Board]] = {}
    chosen: dict[int, Board] = {}
    for board in sorted(boards, key=lambda one: (*by_coverage(one), -one.n_examples, one.id)):
        same = (one for one in chosen.values() if _same(one, board) and example_sets.nested(one, board, digests))
        first = next(same, board)
        chosen.setdefault(first.id, first)
        found.setdefault(first.id, []).append(board)
    ordered = sorted(chosen.values(), key=place)
    return [Standing(board, tuple(sorted(found[board.id][1:], key=lambda one: one.n_examples))) for board in ordered]


def _same(first: Board, second: Board) -> bool:
    """Whether two boards differ in nothing but their examples."""
    return all(getattr(first, name) == getattr(second, name) for name in ("defence_id", "dataset", "norm", "epsilon"))
