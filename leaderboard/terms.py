"""What the attacks and sources of some boards are, in their own words: the terms that a page explains."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from bench.store import evidence
from bench.store.queries import Board, Cell
from leaderboard import tables


@dataclasses.dataclass(frozen=True)
class Term:
    """A name on a page, what people call it if not by that name, and what it is."""

    name: str
    label: str
    meaning: str


def engines(cells: Iterable[Cell]) -> list[Term]:
    """The engines of some cells that say what they are."""
    found = {cell.attack: cell.attack_about for cell in cells}
    order = tables.ranked((name, about.place) for name, about in found.items())
    return [Term(name, found[name].label, found[name].meaning) for name in order if found[name].meaning]


def sources(cells: Iterable[Cell]) -> list[Term]:
    """The kinds of the sources of some cells, as far as they are said."""
    found = {cell.source_about.kind: cell.source_about for cell in cells}
    order = tables.ranked((kind, about.place) for kind, about in found.items())
    return [Term(kind, found[kind].label, found[kind].meaning) for kind in order if found[kind].meaning]


def everything(boards: Iterable[Board]) -> dict[str, list[Term]]:
    """The strategies, sources and engines of all boards."""
    cells = [cell for board in boards for cell in board.cells]
    strategies = [
        Term(name, label, meaning) for name, (label, meaning) in evidence.strategies(cells).items() if meaning
    ]
    return {"strategies": strategies, "sources": sources(cells), "engines": engines(cells)}
