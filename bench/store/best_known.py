"""Best Known and Best Adversary of a board, counted by the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench.api import BenchError
from bench.store import schema
from bench.store.schema import CLEAN

if TYPE_CHECKING:
    from bench.store.queries import Cell


def best(
    connection: Connection, board_id: int, counted: Sequence[Cell], cells: Sequence[Cell]
) -> tuple[int, dict[str, int]]:
    """Best Known, and Best Adversary by engine: one pass over the board in the order of the primary key.

    Which engines an example withstands, over all their sources and settings, becomes the bits of one number; examples
    are then counted by that number, so that only a few rows leave the database.
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
    withstood = (
        sa.select(rows.example_idx, (rows.bit * sa.func.min(rows.correct)).label("bit"))
        .group_by(rows.example_idx, rows.bit)
        .subquery()
    )
    by_example = sa.select(sa.func.sum(withstood.c.bit).label("bits")).group_by(withstood.c.example_idx).subquery()
    counts = connection.execute(sa.select(by_example.c.bits, sa.func.count()).group_by(by_example.c.bits)).all()
    by_engine = {
        engine: sum(count for bits, count in counts if int(bits) >> place & 1)
        for place, engine in enumerate(engines)
        if engine != CLEAN
    }
    everything = (1 << len(engines)) - 1
    return sum(count for bits, count in counts if int(bits) == everything), by_engine


def rows_of(board_id: int, counted: Sequence[Cell], cells: Sequence[Cell]) -> list[sa.ColumnElement[bool]]:
    """The rows of the counted cells; names the others only if there are any, so that the common case stays a plain scan."""
    result = schema.result.c
    chosen = [result.board_id == board_id]
    left_out = [cell for cell in cells if cell not in counted]
    if left_out:
        chosen.append(
            sa.not_(
                sa.or_(
                    *(
                        sa.and_(result.attack_id == cell.attack_id, result.source_id == cell.source_id)
                        for cell in left_out
                    )
                )
            )
        )
    return chosen
