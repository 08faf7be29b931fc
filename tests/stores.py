"""Databases of both kinds for tests, and what to put into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.store import schema, writer
from bench.store.database import open_database, writing
from bench.store.writer import ShardResult
from tools.compare_rows import snapshot


def opened(tmp_path: Path) -> Database:
    return open_database(str(tmp_path / "bench.db"), create=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs_process)])
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Makes the URLs of new empty databases of one kind."""
    if request.param == "sqlite":
        return lambda: str(tmp_path_factory.mktemp("store") / "bench.db")
    return request.getfixturevalue("postgres").database


@pytest.fixture
def database(new_url: Callable[[], str]) -> Iterator[Database]:
    database = open_database(new_url(), create=True)
    yield database
    database.dispose()


def a_board(database: Database, n_examples: int, name: str = "d") -> int:
    thing = {"name": name, "version": "1", "params_json": "{}", "fingerprint": name}
    defence = writer.ensure(
        database, schema.defence, {**thing, "keyed": True, "key_id": "k", "weights_sha256": "w", "description": "D."}
    )
    return writer.ensure(database, schema.board, {
        "defence_id": defence, "dataset": "x", "examples_sha256": "e", "norm": "linf", "epsilon": 0.03,
        "n_examples": n_examples, "fingerprint": f"b-{name}"})  # fmt: skip


def a_cell(
    database: Database,
    board: int,
    attack: str,
    source: str,
    inside: bool = True,
    strategy: str = "s",
    scope: str = schema.ALL,
) -> writer.CellKey:
    ids = [
        writer.ensure(
            database, table, {"name": name, "version": "1", "params_json": "{}", "fingerprint": f"{kind}-{name}"}
        )
        for kind, table, name in (("a", schema.attack, attack), ("s", schema.source, source))
    ]
    key = (board, ids[0], ids[1])
    run = writer.start_run(
        database, {"command": "", "preset": "p", "spec_json": "{}", "versions_json": "{}", "device": ""}
    )
    values = {"run_id": run, "strategy": strategy, "inside_threat_model": inside, "scope": scope}
    writer.ensure_cell(database, key, values)
    return key


def mark_imported(database: Database, key: writer.CellKey, mark: str) -> None:
    """Has a cell be somebody else's, judged here or not."""
    with writing(database) as connection:
        connection.execute(sa.update(schema.cell).where(writer.of_cell(schema.cell, key)).values(imported=mark))


def shard(start: int, correct: list[bool]) -> ShardResult:
    return shard_of(range(start, start + len(correct)), correct)


def shard_of(examples: Sequence[int], correct: Sequence[bool]) -> ShardResult:
    rows = [
        {"example_idx": i, "correct": int(ok), "pred": 1, "label": 1, "margin": 0.5, "distance": 0.01,
         "source_success": 1, "source_margin": -1.0, "restart": 0, "target": -1, "part": -1, "gradients": 10, "queries": 2}
        for i, ok in zip(examples, correct, strict=True)
    ]  # fmt: skip
    return ShardResult(rows, "test", 1.0, {"flag": 1}, ("part",), "file", "sha")


def fill(database: Database, board: int, cells: dict[tuple[str, str], np.ndarray], inside: bool = True) -> None:
    for (attack, source), correct in cells.items():
        key = a_cell(database, board, attack, source, inside)
        writer.record_shard(database, key, shard(0, correct.tolist()), len(correct))


def rows(db: str) -> list[tuple[object, ...]]:
    """Every result with the names of its cell in place of ids: what must be the same however a run went."""
    results = snapshot(db)["result"].items()
    return sorted((norm, attack, source, example, *row.values())
                  for (_, norm, _, attack, _, source, _, example), row in results)  # fmt: skip
