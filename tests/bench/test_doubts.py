"""Doubts about a board: what beat the gradients is seen even where an attack with gradients had a part without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.api import flags
from bench.evaluation import doubts
from bench.store import schema, writer
from bench.store.writer import ShardResult
from tests.leaderboard.stores import PARTS, Filler

N = 20


def fill(filler: Filler, board: int, attack: str, broken: np.ndarray, part: int) -> None:
    """A cell that broke these examples on its source, by this part of the attack."""
    rows = [
        {
            "example_idx": i, "correct": not broken[i], "pred": 0, "label": 0, "margin": 0.0, "distance": 0.0,
            "source_success": int(broken[i]), "source_margin": 0.0, "restart": 0, "target": -1, "part": part,
            "gradients": 0, "queries": 0,
        }
        for i in range(N)
    ]  # fmt: skip
    key = filler.cell(board, attack, "self", "standard")
    writer.record_shard(filler.database, key, ShardResult(rows, "test", 1.0, {}, PARTS.get(attack, ()), None, None), N)


def about(database: Database, board: int) -> set[str]:
    """The doubts about any cell of a board."""
    return {name for found in doubts.found(database, board).values() for name in found}


@pytest.mark.parametrize("described", [True, False], ids=["as stored", "of an older version"])
@pytest.mark.parametrize(("part", "doubted"), [(0, False), (3, True)], ids=["apgd-ce", "square"])
def test_square_inside_autoattack_does_not_count_as_a_gradient_attack(
    tmp_path: Path, part: int, doubted: bool, described: bool
) -> None:
    filler = Filler(tmp_path)
    board = filler.board("none", "linf", N, keyed=False)
    filler.clean(board, 0.9, np.linspace(0, 1, N))
    fill(filler, board, "pgd", np.arange(N) < 5, -1)
    fill(filler, board, "aa", np.arange(N) < 15, part)
    fill(filler, board, "square", np.arange(N) < 15, -1)
    if not described:
        with filler.database.begin() as connection:
            connection.execute(sa.update(schema.attack).values(about_json=None))
    assert (flags.SQUARE_WINS in about(filler.database, board)) is doubted


def test_an_engine_that_is_not_installed_is_what_its_row_says(tmp_path: Path) -> None:
    filler = Filler(tmp_path)
    board = filler.board("none", "linf", N, keyed=False)
    filler.clean(board, 0.9, np.linspace(0, 1, N))
    fill(filler, board, "pgd", np.arange(N) < 5, -1)
    fill(filler, board, "elsewhere", np.arange(N) < 15, -1)
    assert about(filler.database, board) == set(), "taken for one with gradients as long as nothing else is known"
    with filler.database.begin() as connection:
        own = schema.attack.c.name == "elsewhere"
        said = '{"gradient_free": ["elsewhere"]}'
        connection.execute(sa.update(schema.attack).where(own).values(about_json=said))
    assert about(filler.database, board) == {flags.SQUARE_WINS}


@pytest.mark.parametrize(("mark", "doubted"), [(None, False), (schema.JUDGED, True), (schema.UNJUDGED, True)])
def test_what_somebody_else_says_settles_no_doubt_about_ones_own(tmp_path: Path, mark: str, doubted: bool) -> None:
    """How an attack did on its source is judged by nobody."""
    filler = Filler(tmp_path)
    board = filler.board("none", "linf", N, keyed=False)
    filler.clean(board, 0.9, np.linspace(0, 1, N))
    fill(filler, board, "pgd", np.arange(N) < 5, -1)
    fill(filler, board, "mt", np.arange(N) < 15, -1)
    fill(filler, board, "square", np.arange(N) < 15, -1)
    with filler.database.begin() as connection:
        own = sa.select(schema.attack.c.id).where(schema.attack.c.name == "mt").scalar_subquery()
        connection.execute(sa.update(schema.cell).where(schema.cell.c.attack_id == own).values(imported=mark))
    assert (flags.SQUARE_WINS in about(filler.database, board)) is doubted
