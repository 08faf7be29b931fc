"""Best Known and Best Adversary of a board, and what else is right under several cells, counted by the database."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench.api import BenchError
from bench.store import schema
from bench.store.schema import CLEAN

if TYPE_CHECKING:
    from bench.store.queries import Cell


@dataclasses.dataclass(frozen=True)
class Bounds:
    """A count of examples between two: what is known to be right, and what is not known to be wrong."""

    least: int
    most: int

    @property
    def exact(self) -> bool:
        return self.least == self.most


def best(
    connection: Connection, board_id: int, counted: Sequence[Cell], cells: Sequence[Cell], n_examples: int
) -> tuple[int, dict[str, Bounds]]:
    """Best Known, and Best Adversary by engine: one pass over the board in the order of the primary key.

    Which engines an example withstands, over all their sources and settings, becomes the bits of one number, and which
    break it those of another; examples are then counted by the two, so that only a few rows leave the database. An
    example withstands what it has a row of, right, in every cell: one that was not shown to all of them does not.
    """
    result, engines = schema.result.c, sorted({cell.attack for cell in counted})
    if len(engines) > 60:
        raise BenchError(f"board {board_id} has {len(engines)} engines; more than 60 on one board are not supported")
    places = {cell.attack_id: sa.literal(1 << engines.index(cell.attack), sa.BigInteger) for cell in counted}
    rows = (
        sa.select(result.example_idx, result.correct, sa.case(places, value=result.attack_id).label("bit"))
        .where(*rows_of(board_id, counted, cells))
        .subquery()
        .c
    )
    sizes = collections.Counter(engines.index(cell.attack) for cell in counted)
    shown_to_all = sa.case({1 << place: size for place, size in sizes.items()}, value=rows.bit) == sa.func.count()
    right, none = sa.func.min(rows.correct) == 1, sa.literal(0, sa.BigInteger)
    by_engine = (
        sa.select(
            rows.example_idx,
            sa.case((right & shown_to_all, rows.bit), else_=none).label("withstood"),
            sa.case((right, none), else_=rows.bit).label("broken"),
        )
        .group_by(rows.example_idx, rows.bit)
        .subquery()
        .c
    )
    by_example = (
        sa.select(sa.func.sum(by_engine.withstood).label("withstood"), sa.func.sum(by_engine.broken).label("broken"))
        .group_by(by_engine.example_idx)
        .subquery()
        .c
    )
    both = (by_example.withstood, by_example.broken)
    counts = [tuple(map(int, row)) for row in connection.execute(sa.select(*both, sa.func.count()).group_by(*both))]
    adversaries = {
        engine: Bounds(
            sum(count for withstood, _, count in counts if withstood >> place & 1),
            n_examples - sum(count for _, broken, count in counts if broken >> place & 1),
        )
        for place, engine in enumerate(engines)
        if engine != CLEAN
    }
    everything = (1 << len(engines)) - 1
    return sum(count for withstood, _, count in counts if withstood == everything), adversaries


def withstanding(
    connection: Connection,
    board_id: int,
    chosen: Sequence[Cell],
    cells: Sequence[Cell],
    rounded: bool = False,
    besides: Sequence[Cell] = (),
) -> int:
    """How many examples are right under all of the chosen cells of a board, and wrong under none of those `besides`.

    With `rounded`, on the rounded images: the unperturbed ones are of eight bits, so that what is right of them is so
    rounded too. A complete cell besides, on what still stood, was not shown what a cell that is not complete has broken.
    """
    result = schema.result.c
    answer = sa.func.coalesce(result.rounded, result.correct) if rounded else result.correct
    of_chosen = sa.func.count() if not besides else sa.func.sum(sa.case((_any_of(besides), 0), else_=1))
    right = (
        sa.select(result.example_idx)
        .where(*rows_of(board_id, [*chosen, *besides], cells))
        .group_by(result.example_idx)
        .having(sa.func.min(answer) == 1, of_chosen == len(chosen))  # shown to all of them
        .subquery()
    )
    return int(connection.execute(sa.select(sa.func.count()).select_from(right)).scalar_one())


def _any_of(cells: Sequence[Cell]) -> sa.ColumnElement[bool]:
    """Whether a row is of one of these cells."""
    result = schema.result.c
    return sa.or_(*(sa.and_(result.attack_id == cell.attack_id, result.source_id == cell.source_id) for cell in cells))


@dataclasses.dataclass(frozen=True)
class Rounded:
    """What becomes of a cell's images when they are rounded to eight bits, as a PNG keeps them; counts of examples."""

    n_done: int
    """Images that were judged so."""
    n_correct: int
    """Right when rounded."""
    survive: int
    """Wrong as the attack made them, and wrong when rounded."""


def judged_rounded(connection: Connection, board_id: int) -> dict[tuple[int, int], Rounded]:
    """By attack and source, what was judged rounded of a board; it reads an index that has nothing else."""
    result = schema.result.c
    query = (
        sa.select(
            result.attack_id,
            result.source_id,
            sa.func.count(),
            sa.func.sum(result.rounded),
            sa.func.sum((1 - result.correct) * (1 - result.rounded)),
        )
        .where(result.board_id == board_id, result.rounded.is_not(None))
        .group_by(result.attack_id, result.source_id)
    )
    rows = connection.execute(query).all()
    return {(attack, source): Rounded(*map(int, counts)) for attack, source, *counts in rows}


def rows_of(board_id: int, counted: Sequence[Cell], cells: Sequence[Cell]) -> list[sa.ColumnElement[bool]]:
    """The rows of the counted cells; names the others only if there are any, so that the common case stays a plain scan."""
    result = schema.result.c
    chosen = [result.board_id == board_id]
    own = {(cell.attack_id, cell.source_id) for cell in counted}
    left_out = [cell for cell in cells if (cell.attack_id, cell.source_id) not in own]
    if left_out:
        chosen.append(sa.not_(_any_of(left_out)))
    return chosen
