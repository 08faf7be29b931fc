"""Where the answers behind a reproduction are: the boards of its defences, and exactly those cells that were asked for.

A board may hold more, such as the same attack with another budget; none of that counts here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from sqlalchemy.engine import Engine

from bench.store import queries
from bench.store.key_searches import KeySearch
from bench.store.outcomes import Outcomes, outcomes
from bench.store.queries import Board
from leaderboard import tables
from leaderboard.tables import Entry


@dataclasses.dataclass(frozen=True)
class Judged:
    """A defence in one norm: its board, its answers, and their columns by engine and source."""

    board: Board
    outcomes: Outcomes
    columns: Mapping[tuple[str, str], int]

    def of(self, engines: Iterable[str], sources: Iterable[str]) -> list[int]:
        """The columns of these engines on these sources."""
        chosen, wanted = list(engines), list(sources)
        return [column for (engine, source), column in self.columns.items() if engine in chosen and source in wanted]

    def entry(self, engine: str, sources: tuple[str, ...]) -> Entry:
        """Right under an engine from all of these sources."""
        return tables.entry(self.board, self.outcomes, self.of([engine], sources), joint=len(sources) > 1)

    def known(self, engines: Iterable[str], sources: tuple[str, ...]) -> Entry:
        """Right under all of these engines from all of these sources, and without a perturbation."""
        return tables.known(self.board, self.outcomes, self.of(engines, sources))

    def clean(self) -> Entry:
        cell = self.board.clean
        return Entry(cell.n_correct if cell else None, self.board.n_examples, cell=cell)


class Stored:
    """What a reproduction asked for, as far as it is in the store; and why the rest is not."""

    def __init__(self, engine: Engine, norms: tuple[str, ...]) -> None:
        self.norms = norms
        self.search: KeySearch | None = None
        self.failed: dict[str, str] = {}
        """Defences without a board, and why."""
        self._engine = engine
        self._places: dict[tuple[str, str], tuple[int, dict[tuple[str, str], tuple[int, int]]]] = {}
        self._judged: dict[tuple[str, str], Judged] = {}

    def add(self, defence: str, norm: str, board: int, cells: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """The board of a defence, and its cells (attack and source id) by engine and source; adds to what is known."""
        _, known = self._places.get((defence, norm), (board, {}))
        self._places[defence, norm] = (board, {**known, **cells})

    def judged(self, defence: str, norm: str) -> Judged | None:
        """A defence's answers in a norm; None if it has no board."""
        place = (defence, norm)
        if place not in self._judged and place in self._places:
            identity, cells = self._places[place]
            (board,) = queries.boards(self._engine, only=identity)
            found = outcomes(self._engine, board)
            columns = {(cell.attack_id, cell.source_id): column for column, cell in enumerate(found.cells)}
            self._judged[place] = Judged(board, found, {name: columns[key] for name, key in cells.items()})
        return self._judged.get(place)
