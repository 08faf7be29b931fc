"""The store on a real SQLite file and a real PostgreSQL server: what is written is read, partial work never looks robust."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine as Database

from bench.api import BenchError, UsageError
from bench.store import queries, schema, writer
from bench.store.database import migrate, open_database, url_of, user_errors
from tests.processes import run
from tests.stores import a_board, a_cell, fill, opened, shard


def test_the_migrations_make_the_schema(database: Database) -> None:
    with database.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []


def test_sqlite_is_set_up_for_one_writer_and_many_readers(tmp_path: Path) -> None:
    with opened(tmp_path).connect() as connection:
        ddl = connection.execute(sa.text("SELECT sql FROM sqlite_master WHERE name = 'result'")).scalar()
        assert connection.execute(sa.text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(sa.text("PRAGMA foreign_keys")).scalar() == 1
    assert "WITHOUT ROWID" in str(ddl)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), attacks=st.integers(1, 3), sources=st.integers(1, 3), examples=st.integers(1, 20))
def test_best_known_and_best_adversary_against_brute_force(
    new_url: Callable[[], str], seed: int, attacks: int, sources: int, examples: int
) -> None:
    database, random = open_database(new_url(), create=True), np.random.default_rng(seed)
    cells = {(f"a{a}", f"s{s}"): random.random(examples) < 0.7 for a in range(attacks) for s in range(sources)}
    clean = random.random(examples) < 0.9
    board = a_board(database, examples)
    fill(database, board, {(schema.CLEAN, schema.CLEAN): clean, **cells})
    fill(database, board, {("a0", "leaked"): np.zeros(examples, bool)}, inside=False)
    (found,) = queries.boards(database)
    assert found.best_known == int(np.logical_and.reduce([clean, *cells.values()]).sum())
    assert not found.partial
    for a in range(attacks):
        union = np.logical_and.reduce([cells[f"a{a}", f"s{s}"] for s in range(sources)])
        assert found.best_adversary[f"a{a}"] == int(union.sum())
    by_source = queries.best_by_source(database, found)
    for s in range(sources):
        own = np.logical_and.reduce([clean, *(cells[f"a{a}", f"s{s}"] for a in range(attacks))])
        assert by_source[f"s{s}"] == int(own.sum())
    database.dispose()


def test_an_attack_has_one_name_over_sources_with_budgets_of_their_own() -> None:
    def cell(attack: str, attack_id: int, source_id: int) -> Any:
        return SimpleNamespace(attack=attack, attack_id=attack_id, source_id=source_id)

    cells = [cell("pgd", 1, 10), cell("pgd", 1, 11), cell("pgd", 2, 12), cell("mt", 3, 10)]
    assert queries.attack_names(cells) == {1: "pgd", 2: "pgd", 3: "mt"}
    cells += [cell("pgd", 4, 10), cell("pgd", 5, 10), cell("pgd", 5, 12), cell("pgd", 6, 12)]
    assert queries.attack_names(cells) == {1: "pgd", 2: "pgd", 3: "mt", 4: "pgd (2)", 5: "pgd (3)", 6: "pgd (2)"}


@pytest.mark.needs_process
def test_best_adversary_is_over_all_settings_of_an_engine(database: Database) -> None:
    board = a_board(database, 4)
    fill(database, board, {(schema.CLEAN, schema.CLEAN): np.ones(4, bool), ("pgd", "s"): np.array([1, 1, 0, 1], bool)})
    row = {"name": "pgd", "version": "1", "params_json": '{"steps": 2}', "fingerprint": "pgd of two steps"}
    (cell,) = queries.boards(database)[0].cells
    with database.connect() as connection:
        run = connection.execute(sa.select(schema.cell.c.run_id)).scalar()
    key = (board, writer.ensure(database, schema.attack, row), cell.source_id)
    writer.ensure_cell(database, key, {"run_id": run, "strategy": "transfer", "inside_threat_model": True})
    writer.record_shard(database, key, shard(0, [False, True, True, True]), 4)
    (found,) = queries.boards(database)
    assert (found.best_known, found.best_adversary) == (2, {"pgd": 2})


def test_a_cell_that_is_not_complete_does_not_count(database: Database) -> None:
    board = a_board(database, 4)
    fill(database, board, {(schema.CLEAN, schema.CLEAN): np.ones(4, bool), ("pgd", "s"): np.array([1, 1, 0, 1], bool)})
    half = a_cell(database, board, "square", "s")
    writer.record_shard(database, half, shard(0, [False, False]), 4)
    failed = a_cell(database, board, "mt", "s")
    writer.fail_shard(database, failed, range(4), "test", "out of memory")
    (found,) = queries.boards(database)
    assert (found.best_known, found.partial, len(found.left_out)) == (3, True, 2)
    assert "square" not in found.best_adversary
    assert {cell.attack: cell.status for cell in found.cells} == {"pgd": "done", "square": "running", "mt": "failed"}
    assert next(cell.error for cell in found.cells if cell.attack == "mt") == "out of memory"


def test_without_clean_there_is_no_best_known(database: Database) -> None:
    fill(database, a_board(database, 2), {("pgd", "s"): np.ones(2, bool)})
    assert queries.boards(database)[0].best_known is None


def test_a_shard_is_stored_once_whatever_happens(database: Database) -> None:
    key = a_cell(database, a_board(database, 4), "pgd", "s")
    writer.record_shard(database, key, shard(0, [True, False]), 4)
    writer.record_shard(database, key, shard(0, [True, False]), 4)
    writer.record_shard(database, key, shard(1, [True, True]), 4)  # another driver, with other shard bounds
    assert writer.done_examples(database, key) == {0, 1}
    writer.record_shard(database, key, shard(2, [True, True]), 4)
    with database.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(schema.result)).scalar() == 4
        cell = connection.execute(sa.select(schema.cell)).one()
    assert (cell.status, cell.n_done, cell.n_correct, cell.gradients, cell.flags_json) == (
        "done",
        4,
        3,
        40,
        '{"flag": 2}',
    )


def test_a_failed_shard_leaves_no_rows(database: Database) -> None:
    key = a_cell(database, a_board(database, 4), "pgd", "s")
    bad = shard(0, [True, False])
    bad.rows[1]["pred"] = None  # type: ignore[index]
    with pytest.raises(sa.exc.IntegrityError):
        writer.record_shard(database, key, bad, 4)
    assert writer.done_examples(database, key) == set()
    with database.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(schema.result)).scalar() == 0


def make(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(statement)
    connection.close()


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, however long it may be " * 10)
    make(tmp_path / "other.db", "CREATE TABLE customers (id INTEGER)")
    make(
        tmp_path / "newer.db",
        "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('9999')",
    )
    make(
        tmp_path / "older.db",
        "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('0000')",
    )
    for name, kind, said in (
        ("text.db", BenchError, "no SQLite database"),
        ("other.db", UsageError, "holds other tables .customers."),
        ("newer.db", BenchError, "newer than this bench knows"),
        ("older.db", BenchError, "bench db upgrade"),
        ("missing.db", UsageError, "there is no database at"),
        (".", UsageError, "is a folder"),
    ):
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(kind, match=said):
            open_database(str(tmp_path / name), create=name != "missing.db")
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before, f"{name} was written to"


@pytest.mark.parametrize("url", ["nonsense://x", "postgresql+nodriver://x/y"])
def test_urls_that_lead_nowhere(url: str) -> None:
    with pytest.raises(UsageError, match=r"--db"):
        open_database(url, create=True)


def test_a_locked_database_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.store.database.BUSY_SECONDS", 0.2)
    monkeypatch.setattr("bench.store.database.PATIENCE_SECONDS", 0.0)
    database = opened(tmp_path)
    other = sqlite3.connect(tmp_path / "bench.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BenchError, match="another process holds it"), user_errors("bench.db"):
        a_board(database, 1)
    other.execute("ROLLBACK")
    assert a_board(database, 1) == 1


def test_a_lock_that_passes_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr("bench.store.database.BUSY_SECONDS", 0.2)
    database = opened(tmp_path)
    other = sqlite3.connect(tmp_path / "bench.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(2.5, lambda: other.execute("ROLLBACK")).start()
    assert a_board(database, 1) == 1
    assert "database is locked" in caplog.text
    assert "trying for another" in caplog.text


def test_a_shard_is_stored_so_that_no_power_cut_takes_it(tmp_path: Path) -> None:
    """With less than FULL (2), SQLite gives a transaction to the disk some time after it was committed."""
    database = opened(tmp_path)
    key, levels = a_cell(database, a_board(database, 4), "pgd", "s"), []

    @sa.event.listens_for(database, "before_cursor_execute")
    def note(connection: sa.Connection, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO result"):
            levels.append(cursor.connection.execute("PRAGMA synchronous").fetchone()[0])

    assert writer.record_shard(database, key, shard(0, [True, False]), 4)
    assert levels == [2]


@pytest.mark.needs_process
def test_a_server_that_goes_and_comes_back_costs_nothing(postgres: Any, caplog: Any) -> None:
    database = open_database(postgres.database(), create=True)
    key = a_cell(database, a_board(database, 4), "pgd", "s")
    postgres.stop()
    threading.Timer(2.5, postgres.start).start()
    assert writer.record_shard(database, key, shard(0, [True, False]), 4)
    assert writer.done_examples(database, key) == {0, 1}
    assert "trying for another" in caplog.text
    database.dispose()


@pytest.mark.needs_process
def test_a_server_that_stays_away_is_named(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.store.database.PATIENCE_SECONDS", 1.0)
    url = postgres.database()
    database = open_database(url, create=True)
    postgres.stop()
    try:
        with pytest.raises(BenchError, match="check that it is up, then run again"), user_errors(url):
            a_board(database, 1)
        with pytest.raises(BenchError, match="check that it is up, then run again"):
            open_database(url, create=True)
    finally:
        postgres.start()
        database.dispose()


@pytest.mark.needs_process
def test_a_server_whose_disk_is_full_says_so(postgres: Any) -> None:
    with small_disk() as disk:
        url = postgres.database(disk)
        database = open_database(url, create=True)
        key, whole = a_cell(database, a_board(database, 4000), "pgd", "s"), shard(0, [True] * 4000)
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb") as stream:
            stream.write(bytes(2**25))
        with (
            pytest.raises(BenchError, match="no room left on its server's disk: free some space"),
            user_errors(url),
        ):
            writer.record_shard(database, key, whole, 4000)
        assert writer.done_examples(database, key) == set()
        filler.unlink()
        assert writer.record_shard(database, key, whole, 4000)
        database.dispose()
        postgres.drop(url)


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A disk with room for a new database, and hardly more."""
    disk = Path(tempfile.mkdtemp(prefix="disk-", dir="/tmp"))  # the server's user has no way into pytest's folders
    if run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk]).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield disk
    finally:
        run(["umount", "--lazy", disk], check=True)
        disk.rmdir()


def test_a_database_of_the_first_schema_is_brought_up_to_date(new_url: Callable[[], str]) -> None:
    url = new_url()
    database = sa.create_engine(url_of(url))
    migrate(database, "0001")
    database.dispose()
    with pytest.raises(BenchError, match="bench db upgrade"):
        open_database(url, create=True)
    database = open_database(url, create=False, upgrade=True)
    with database.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
    database.dispose()
