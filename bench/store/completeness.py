"""When a cell is complete that was run on what still stood (scope `survivors`), and what stands.

An example stands until a row of the threat model that was judged here is wrong, with or without a perturbation. Such
a cell is complete when every example that stands has a row in it: what is broken needs no further attack to be so.
What was not complete may become so by another cell's rows, and a cell whose rows are taken away may leave others
incomplete: whoever writes or deletes rows has `settle` say it anew.
"""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import schema
from bench.store.database import retry_transient, writing
from bench.store.schema import SURVIVORS, UNJUDGED
from bench.store.writer import CellKey, of_cell


def settle(connection: Connection, board_id: int) -> None:
    """Brings the status of a board's cells up to date, as far as it depends on other cells' rows."""
    cell, board = schema.cell.c, schema.board.c
    total = connection.execute(sa.select(board.n_examples).where(board.id == board_id)).scalar_one()
    open_cells = connection.execute(
        sa.select(schema.cell)
        .where(cell.board_id == board_id, cell.scope == SURVIVORS, cell.status != "failed", cell.n_done < total)
        .with_for_update()
    ).all()
    if not open_cells:
        return
    broken, result = _broken(connection, board_id).subquery(), schema.result.c
    n_broken = connection.execute(sa.select(sa.func.count()).select_from(broken)).scalar_one()
    shown = {
        (attack, source): count
        for attack, source, count in connection.execute(
            sa.select(result.attack_id, result.source_id, sa.func.count())
            .where(result.board_id == board_id, result.example_idx.not_in(sa.select(broken.c.example_idx)))
            .group_by(result.attack_id, result.source_id)
        )
    }
    for row in open_cells:
        status = "done" if shown.get((row.attack_id, row.source_id), 0) == total - n_broken else "running"
        if status != row.status:
            key = (board_id, row.attack_id, row.source_id)
            connection.execute(sa.update(schema.cell).where(of_cell(schema.cell, key)).values(status=status))


@retry_transient
def update(database: Database, board_id: int) -> None:
    """`settle` in a transaction of its own."""
    with writing(database) as connection:
        settle(connection, board_id)


@retry_transient
def stored_broken(database: Database, board_id: int) -> list[int]:
    """The examples of a board that do not stand."""
    with database.connect() as connection:
        return [int(example) for example in broken_examples(connection, board_id)]


def broken_examples(connection: Connection, board_id: int, without: frozenset[CellKey] = frozenset()) -> np.ndarray:
    """The examples of a board (ints, in order) that do not stand, whatever the cells `without` say."""
    return np.array(sorted(connection.execute(_broken(connection, board_id, without)).scalars()), int)


def _broken(connection: Connection, board_id: int, without: frozenset[CellKey] = frozenset()) -> sa.Select[tuple[int]]:
    cell, result = schema.cell.c, schema.result.c
    query = sa.select(cell.attack_id, cell.source_id, cell.inside_threat_model, cell.imported)
    left_out = [
        (row.attack_id, row.source_id)
        for row in connection.execute(query.where(cell.board_id == board_id))
        if not row.inside_threat_model
        or row.imported == UNJUDGED
        or (board_id, row.attack_id, row.source_id) in without
    ]
    wrong = [result.board_id == board_id, result.correct == 0]
    if left_out:
        wrong.append(
            sa.not_(
                sa.or_(
                    *(sa.and_(result.attack_id == attack, result.source_id == source) for attack, source in left_out)
                )
            )
        )
    return sa.select(result.example_idx).where(*wrong).distinct()
