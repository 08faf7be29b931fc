"""The stored results behind a reproduction: the boards of its defences, and exactly those cells that were asked for.

A board may hold more, such as the same attack with another budget; none of that counts here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from sqlalchemy.engine import Engine as Database

from bench.store import queries
from bench.store.key_searches import KeySearch
from bench.store.outcomes import Outcomes, outcomes
from bench.store.queries import Board
from leaderboard import tables
from leaderboard.tables import TableEntry


@dataclasses.dataclass(frozen=True)
class BoardResults:
    """A defence in one norm: its board, its answers, and their columns by engine and source."""

    board: Board
    outcomes: Outcomes
    columns: Mapping[tuple[str, str], int]

    def of(self, engines: Iterable[str], sources: Iterable[str]) -> list[int]:
        """The columns of these engines on these sources."""
        chosen, wanted = list(engines), list(sources)
        return [column for (engine, source), column in self.columns.items() if engine in chosen and source in wanted]

    def entry(self, engine: str, sources: tuple[str, ...]) -> TableEntry:
        """Right under an engine from all of these sources."""
        return tables.entry(self.board, self.outcomes, self.of([engine], sources), joint=len(sources) > 1)

    def known(self, engines: Iterable[str], sources: tuple[str, ...]) -> TableEntry:
        """Right under all of these engines from all of these sources, and without a perturbation."""
        return tables.known(self.board, self.outcomes, self.of(engines, sources))

    def clean(self) -> TableEntry:
        cell = self.board.clean
        return TableEntry(cell.n_correct if cell else None, self.board.n_examples, cell=cell)


class Results:
    """What a reproduction asked for, as far as it is in the store; and why the rest is not."""

    def __init__(self, database: Database, norms: tuple[str, ...]) -> None:
        self.norms = norms
        self.search: KeySearch | None = None
        self.failed: dict[str, str] = {}
        """Defences without a board, and why."""
        self._database = database
        self._places: dict[tuple[str, str], tuple[int, dict[tuple[str, str], tuple[int, int]]]] = {}
        self._boards: dict[tuple[str, str], BoardResults] = {}

    def add(self, defence: str, norm: str, board: int, cells: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """The board of a defence, and its cells (attack and source id) by engine and source; adds to what is known."""
        _, known = self._places.get((defence, norm), (board, {}))
        self._places[defence, norm] = (board, {**known, **cells})

    def board(self, defence: str, norm: str) -> BoardResults | None:
        """A defence's answers in a norm; None if it has no board."""
        place = (defence, norm)
        if place not in self._boards and place in self._places:
            identity, cells = self._places[place]
            (board,) = queries.boards(self._database, only=identity)
            found = outcomes(self._database, board)
            columns = {(cell.attack_id, cell.source_id): column for column, cell in enumerate(found.cells)}
            self._boards[place] = BoardResults(board, found, {name: columns[key] for name, key in cells.items()})
        return self._boards.get(place)
