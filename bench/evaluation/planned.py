"""The cells of a contest with their places in the store, and how far they are."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from sqlalchemy.engine import Engine as Database

from bench import order, registry
from bench.api import Engine
from bench.evaluation.contest import Contest
from bench.evaluation.schedule import BoardSchedule
from bench.plan import Pair
from bench.store import completeness, example_sets, identity, schema, writer
from bench.store.identity import Row
from bench.store.schema import CLEAN, SURVIVORS
from bench.store.writer import CellKey


@dataclasses.dataclass(frozen=True)
class PlannedCell:
    """A cell with its place in the store."""

    contest: Contest
    pair: Pair | None  # None for the unperturbed images
    norm: str
    key: CellKey
    fingerprint: str

    @functools.cached_property
    def engine(self) -> Engine | None:
        """The attack engine with its settings; none for the unperturbed images."""
        if self.pair is None:
            return None
        return registry.engine(self.pair.engine, dataclasses.asdict(self.pair.settings))

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the engines that the attack is made of, if of several."""
        return tuple(self.engine.parts) if self.engine else ()

    @property
    def needs_key(self) -> bool:
        return self.pair is not None and self.pair.needs_key

    @property
    def inside_threat_model(self) -> bool:
        return self.pair is None or self.pair.inside_threat_model

    @property
    def name(self) -> str:
        return f"{self.contest.defence_name} {self.norm} {self.pair.name if self.pair else CLEAN}"

    def work(self, examples: int) -> int:
        """What the attack on so many examples costs, in the units of its engine."""
        return self.engine.work(examples) if self.engine else 0


@dataclasses.dataclass(frozen=True)
class PlannedBoard:
    """A board's cells in the order that examples go through them, the unperturbed images first."""

    id: int
    cells: Sequence[PlannedCell]
    schedule: BoardSchedule
    on_survivors: bool
    shares: Sequence[float]
    """What is expected to stand before each cell."""

    def refresh(self, database: Database) -> None:
        """Has the schedule know what the store knows."""
        stored = [writer.done_examples(database, cell.key) for cell in self.cells]
        self.schedule.refresh(stored, completeness.stored_broken(database, self.id) if self.on_survivors else ())

    def places(self, needs_key: bool) -> list[int]:
        """The attacks that are run by who has the key, or those that are not."""
        return [place for place, cell in enumerate(self.cells) if cell.pair and cell.needs_key is needs_key]

    def named(self, places: Sequence[int]) -> Iterator[PlannedCell]:
        return (self.cells[place] for place in places)


def planned(database: Database, run_id: int, contest: Contest, pairs: Sequence[Pair]) -> list[PlannedBoard]:
    """A board per norm, with its rows in the store; what is stored of it already is known to its schedule."""
    spec = contest.spec
    defence_id = writer.ensure(database, schema.defence, contest.defence_row)
    example_sets.keep(database, contest.examples.fingerprint, contest.example_digests)
    boards = []
    for norm in spec.norms:
        row = contest.board_row(norm)
        board_id = writer.ensure(database, schema.board, {**row, "defence_id": defence_id})
        chosen = order.of(contest.defence_name, norm, pairs) if spec.scope == SURVIVORS else pairs
        cells = [_cell(database, run_id, contest, pair, norm, board_id, row) for pair in (None, *chosen)]
        completeness.update(database, board_id)  # results that gave way may have been what broke others' examples
        inside = [cell.inside_threat_model for cell in cells]
        schedule = BoardSchedule(len(contest.examples), inside, spec.scope)
        shares = [1.0, *order.left_before(contest.defence_name, norm, chosen)]
        board = PlannedBoard(board_id, cells, schedule, spec.scope == SURVIVORS, shares)
        board.refresh(database)
        boards.append(board)
    return boards


def _cell(
    database: Database, run_id: int, contest: Contest, pair: Pair | None, norm: str, board_id: int, board: Row
) -> PlannedCell:
    attack, source = contest.attack_row(pair), contest.source_row(pair)
    attack_id = writer.ensure(database, schema.attack, attack)
    source_id = writer.ensure(database, schema.source, source)
    key = (board_id, attack_id, source_id)
    values = {
        "run_id": run_id,
        "strategy": pair.strategy if pair else CLEAN,
        "inside_threat_model": pair.inside_threat_model if pair else True,
        "scope": contest.spec.scope if pair else schema.ALL,
    }
    writer.ensure_cell(database, key, values)
    return PlannedCell(contest, pair, norm, key, identity.cell(board, attack, source))
