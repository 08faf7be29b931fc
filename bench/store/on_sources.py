"""How attacks did on the sources they computed with, whatever the defended model said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import schema
from bench.store.database import reading
from bench.store.queries import Board, Cell


def withstood(database: Database) -> dict[tuple[int, int, int], int]:
    """How many examples each attack left right on its own source, by board, attack and source id."""
    result = schema.result.c
    key = (result.board_id, result.attack_id, result.source_id)
    query = sa.select(*key, sa.func.sum(1 - result.source_success)).group_by(*key)
    with database.connect() as connection:
        return {(board, attack, source): int(count) for board, attack, source, count in connection.execute(query)}


def successes(database: Database | Connection, board: Board, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Which examples (N, bool) the attack broke on its own source, and the part of it that did (N, −1 if it has none)."""
    result = schema.result.c
    query = (
        sa.select(result.source_success, result.part)
        .where(result.board_id == board.id, result.attack_id == cell.attack_id, result.source_id == cell.source_id)
        .order_by(result.example_idx)
    )
    with reading(database) as connection:
        rows = connection.execute(query).all()
    return np.array([row[0] for row in rows], bool), np.array([row[1] for row in rows], int)


def broken_by_part(database: Database, board_id: int, attacks: Sequence[int]) -> dict[tuple[int, int], dict[int, int]]:
    """By attack (of these) and source: how many examples each part of it, by its place, broke on the source."""
    result = schema.result.c
    query = (
        sa.select(result.attack_id, result.source_id, result.part, sa.func.count())
        .where(result.board_id == board_id, result.attack_id.in_(attacks), result.part >= 0, result.source_success == 1)
        .group_by(result.attack_id, result.source_id, result.part)
    )
    found: dict[tuple[int, int], dict[int, int]] = {}
    with database.connect() as connection:
        for attack_id, source_id, part, count in connection.execute(query):
            found.setdefault((attack_id, source_id), {})[part] = count
    return found
