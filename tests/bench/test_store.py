"""The store on a real SQLite file and a real PostgreSQL server: what is written is read, partial work never looks robust."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
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
from bench.store import completeness, evidence, frames, queries, schema, writer
from bench.store.best_known import Bounds
from bench.store.database import migrate, open_database, url_of, user_errors, writing
from bench.store.key_worth import KeyWorth, Left
from bench.store.outcomes import outcomes
from tests.processes import run
from tests.stores import a_board, a_cell, fill, mark_imported, opened, shard, shard_of


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


class Survivors:
    """A board that is filled as runs on what still stands fill it, and what must come of that, worked out by hand."""

    def __init__(self, database: Database, n: int, seed: int) -> None:
        self.database, self.n, self.random = database, n, np.random.default_rng(seed)
        self.board = a_board(database, n)
        self.rows: dict[writer.CellKey, dict[int, bool]] = {}
        self.about: dict[writer.CellKey, tuple[str, str, bool]] = {}
        """What each cell's attack is, its scope, and whether what it finds wrong is broken."""

    def cell(self, attack: str, source: str, scope: str, kind: str = "") -> writer.CellKey:
        key = a_cell(self.database, self.board, attack, source, kind != "outside", scope=scope)
        if kind == "unjudged":
            mark_imported(self.database, key, schema.UNJUDGED)
        self.rows[key], self.about[key] = {}, (attack, scope, not kind)
        return key

    def show(self, key: writer.CellKey, examples: Sequence[int], chance: float = 0.6) -> None:
        """Has some examples attacked, in two shards with gaps, and so many of them withstand."""
        for part in (examples[::2], examples[1::2]):
            if part:
                right = (self.random.random(len(part)) < chance).tolist()
                assert writer.record_shard(self.database, key, shard_of(part, right), self.n)
                self.rows[key] |= dict(zip(part, right, strict=True))
        completeness.update(self.database, self.board)

    @property
    def standing(self) -> list[int]:
        wrong = {e for key, rows in self.rows.items() if self.about[key][2] for e, ok in rows.items() if not ok}
        return [example for example in range(self.n) if example not in wrong]

    def done(self, key: writer.CellKey) -> bool:
        scope, shown = self.about[key][1], self.rows[key].keys()
        return shown >= set(self.standing if scope == schema.SURVIVORS else range(self.n))

    def counted(self, attack: str | None = None) -> list[dict[int, bool]]:
        return [
            rows
            for key, rows in self.rows.items()
            if self.done(key) and self.about[key][2] and self.about[key][0] in ((attack,) if attack else ("a0", "a1"))
        ]

    def check(self) -> queries.Board:
        (found,) = queries.boards(self.database)
        by_key = {(self.board, cell.attack_id, cell.source_id): cell for cell in found.cells}
        for key, cell in by_key.items():
            rows = self.rows[key]
            right, wrong = sum(rows.values()), len(rows) - sum(rows.values())
            assert cell.status == ("done" if self.done(key) else "running"), key
            assert (cell.n_done, cell.broken, cell.bounds) == (len(rows), wrong, Bounds(right, self.n - wrong))
            assert cell.on_survivors == (self.about[key][1] == schema.SURVIVORS and len(rows) < self.n)
            assert cell.accuracy == (None if cell.on_survivors or not rows else right / len(rows))
        clean = next(rows for key, rows in self.rows.items() if self.about[key][0] == schema.CLEAN)
        every = [clean, *self.counted()]
        known = sum(all(rows.get(e, False) for rows in every) for e in range(self.n))
        assert found.best_known == (known if len(every) > 1 else None)
        for attack in ("a0", "a1"):
            own = self.counted(attack)
            least = sum(all(rows.get(e, False) for rows in own) for e in range(self.n))
            most = sum(all(rows.get(e, True) for rows in own) for e in range(self.n))
            assert found.adversaries.get(attack) == (Bounds(least, most) if own and len(every) > 1 else None)
        answers = outcomes(self.database, found)
        for column, cell in enumerate(answers.cells):
            rows = self.rows[self.board, cell.attack_id, cell.source_id]
            assert np.flatnonzero(answers.shown[:, column]).tolist() == sorted(rows)
            assert np.flatnonzero(answers.wrong[:, column]).tolist() == sorted(e for e, ok in rows.items() if not ok)
        mask = evidence.best_known(answers)
        assert (None if mask is None else int(mask.sum())) == found.best_known
        assert found.scope == (schema.SURVIVORS if any(cell.on_survivors for cell in found.cells) else schema.ALL)
        self._check_frames(found)
        return found

    def _check_frames(self, found: queries.Board) -> None:
        cells = frames.cells_frame([found])
        examples = frames.examples_frame(self.database, [found])
        assert len(examples) == sum(map(len, self.rows.values()))
        for row, cell in zip(cells[cells["attack"] != schema.CLEAN].to_dict("records"), found.cells, strict=True):
            assert (row["scope"], row["examples"], row["broken"]) == (cell.scope, cell.n_done, cell.broken)
            ends = (round(100 * cell.n_correct / self.n, 2), round(100 * (self.n - cell.broken) / self.n, 2))
            assert (row["accuracy_least"], row["accuracy_most"]) == ends
            if cell.on_survivors:
                assert not any(row[name] == row[name] for name in ("accuracy", "low", "high")), "they are not known"
        (board,) = frames.boards_frame([found]).to_dict("records")
        assert board["scope"] == found.scope
        for attack, bounds in found.adversaries.items():
            ends = (round(100 * bounds.least / self.n, 2), round(100 * bounds.most / self.n, 2))
            assert (board["best_adversary_least"][attack], board["best_adversary_most"][attack]) == ends
            assert board["best_adversary"].get(attack) == (ends[0] if bounds.exact else None)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), n=st.integers(1, 14))
def test_partly_shown_boards_against_brute_force(new_url: Callable[[], str], seed: int, n: int) -> None:
    """Cells on all examples and on what still stands, complete or not, outside the threat model or not judged."""
    database = open_database(new_url(), create=True)
    made, random = Survivors(database, n, seed), np.random.default_rng(seed)
    made.show(made.cell(schema.CLEAN, schema.CLEAN, schema.ALL), range(n), 0.9)
    for place in random.permutation(6).tolist():
        kind = ("outside", "unjudged")[place % 2] if random.random() < 0.3 else ""
        scope = str(random.choice([schema.ALL, schema.SURVIVORS, schema.SURVIVORS]))
        key = made.cell(f"a{place % 2}", f"s{place // 2}", scope, kind)
        examples = list(range(n)) if scope == schema.ALL else made.standing
        if random.random() < 0.3:
            examples = examples[: len(examples) // 2]  # it is not complete
        made.show(key, examples)
        if len(made.rows) in (4, 7):
            made.check()
    database.dispose()


def test_a_cell_on_survivors_is_complete_when_every_example_that_stands_has_a_row(database: Database) -> None:
    made = Survivors(database, 6, 0)
    clean = made.cell(schema.CLEAN, schema.CLEAN, schema.ALL)
    made.show(clean, range(6), 1)
    first, second = (made.cell("a0", source, schema.SURVIVORS) for source in ("s0", "s1"))
    leaked = made.cell("a1", "key", schema.SURVIVORS, "outside")
    theirs = made.cell("a1", "s0", schema.SURVIVORS, "unjudged")
    made.show(leaked, range(6), 0)
    made.show(theirs, range(6), 0)
    assert made.standing == list(range(6)), "neither breaks anything"
    made.show(first, [0, 1], 0)
    made.show(first, [2, 3, 4], 1)
    made.show(second, [2, 3, 4], 1)
    assert {cell.source: cell.status for cell in made.check().cells if cell.attack == "a0"} == {
        "s0": "running", "s1": "running",
    }  # fmt: skip
    made.show(first, [5], 0)
    found = made.check()
    assert {cell.source: cell.status for cell in found.cells if cell.attack == "a0"} == {"s0": "done", "s1": "done"}
    assert (found.best_known, found.adversaries["a0"]) == (3, Bounds(3, 3))
    with writing(database) as connection:
        writer.delete_results(connection, first)
        connection.execute(sa.delete(schema.cell).where(writer.of_cell(schema.cell, first)))
        completeness.settle(connection, made.board)
    del made.rows[first]
    assert made.check().best_known is None, "of what it broke nothing is known any more"


@pytest.mark.parametrize("everything", [True, False])
def test_what_is_broken_by_a_cell_that_is_not_complete_is_not_laid_at_the_keys_door(
    database: Database, everything: bool
) -> None:
    """What the key is worth is of the same examples, whether the cells outside the threat model saw all of them or not."""
    made = Survivors(database, 6, 0)
    made.show(made.cell(schema.CLEAN, schema.CLEAN, schema.ALL), range(6), 1)
    made.show(made.cell("a0", "s0", schema.SURVIVORS), range(6), 1)
    made.show(made.cell("a1", "s0", schema.SURVIVORS), [0, 1], 0)
    key = a_cell(database, made.board, "a1", "key", inside=False, strategy="key-leaked", scope=schema.SURVIVORS)
    shown = range(6) if everything else [2, 3, 4, 5]
    writer.record_shard(database, key, shard_of(shown, [example != 5 for example in shown]), 6)
    completeness.update(database, made.board)
    (found,) = queries.boards(database)
    assert (found.best_known, found.partial, found.key_worth) == (6, True, KeyWorth(Left(5), None))


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
