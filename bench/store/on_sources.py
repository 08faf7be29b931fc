"""How attacks did on the sources they computed with, whatever the defended model said."""

from __future__ import annotations

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class OnSource:
    """How an attack did on its own source, by example of the board."""

    shown: np.ndarray
    """Which examples (N, bool) it was shown."""
    broken: np.ndarray
    """Which of them (N, bool) it broke there."""
    part: np.ndarray
    """The part of it that did (N, int; −1 for none)."""


def successes(database: Database | Connection, board: Board, cell: Cell) -> OnSource:
    """What the attack broke on its own source."""
    result = schema.result.c
    query = sa.select(result.example_idx, result.source_success, result.part).where(
        result.board_id == board.id, result.attack_id == cell.attack_id, result.source_id == cell.source_id
    )
    with reading(database) as connection:
        rows = np.array(connection.execute(query).all(), int).reshape(-1, 3)
    rows = rows[(rows[:, 0] >= 0) & (rows[:, 0] < board.n_examples)]  # `bench verify` names others
    shown, broken = np.zeros(board.n_examples, bool), np.zeros(board.n_examples, bool)
    part = np.full(board.n_examples, -1)
    shown[rows[:, 0]], broken[rows[:, 0]], part[rows[:, 0]] = True, rows[:, 1] > 0, rows[:, 2]
    return OnSource(shown, broken, part)


def carried_over(database: Database | Connection, board: Board, cell: Cell) -> tuple[int, int]:
    """How often an attack changed an example that is right without it and deceived its own source, and how many of those
    times the defended model too."""
    if board.clean is None:
        return 0, 0
    attacked, clean = schema.result.alias("attacked"), schema.result.alias("clean")
    query = (
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(1 - attacked.c.correct), 0))
        .select_from(
            attacked.join(
                clean,
                (clean.c.board_id == attacked.c.board_id)
                & (clean.c.example_idx == attacked.c.example_idx)
                & (clean.c.attack_id == board.clean.attack_id)
                & (clean.c.source_id == board.clean.source_id),
            )
        )
        .where(
            attacked.c.board_id == board.id,
            attacked.c.attack_id == cell.attack_id,
            attacked.c.source_id == cell.source_id,
            attacked.c.source_success == 1,
            attacked.c.distance > 0,
            clean.c.correct == 1,
        )
    )
    with reading(database) as connection:
        successes, carried = connection.execute(query).one()
    return int(successes), int(carried)


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
