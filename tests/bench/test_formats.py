"""What is stored can grow: a new column leaves old digests valid, and old files readable."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.api import BenchError
from bench.evaluation.verify import verify
from bench.exchange import exporting, importing, layout
from bench.store import about, identity, queries, row_format, schema, writer
from bench.store import database as databases
from bench.store.database import migrate, open_database, url_of, writing
from tests import archives, vaults
from tests.stores import a_board, a_cell, fill, shard

KNOWN_ROW = {
    "example_idx": 3, "correct": 1, "pred": 7, "label": 7, "margin": 0.1, "distance": 1e-05, "source_success": 0,
    "source_margin": -2.5, "restart": 1, "target": -1, "part": -1, "gradients": 20, "queries": 21,
}  # fmt: skip
NOW = row_format.newest()
KNOWN_ROUNDED = {
    0: "fbbf995849fd51777b91856135e33d474e72dc4dae8642828ca52e2d9c2702b6",
    None: "5464bb93d4f4888a0df5f092f01cd07dcdeea6d00c4e43b27baccdc0ccf2b855",
}
"""Digests of version 2: the same row judged rounded, and not judged so."""
KNOWN_DIGEST = "0de3cd8686336fabe4777a03958278f0dfbb3430b238cef3714ab85426b9e2b4"


def test_the_digest_of_version_1_is_what_it_always_was() -> None:
    values = [[3, 1, 7, 7, 0.1, 1e-05, 0, -2.5, 1, -1, -1, 20, 21]]
    assert row_format.digest([KNOWN_ROW], 1) == KNOWN_DIGEST
    assert hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest() == KNOWN_DIGEST


@pytest.mark.parametrize("rounded", KNOWN_ROUNDED)
def test_the_digest_of_version_2_has_the_rounded_answer_too(rounded: int | None) -> None:
    values = [[3, 1, 7, 7, 0.1, 1e-05, 0, -2.5, 1, -1, -1, 20, 21, rounded]]
    assert row_format.digest([{**KNOWN_ROW, "rounded": rounded}], 2) == KNOWN_ROUNDED[rounded]
    assert hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest() == KNOWN_ROUNDED[rounded]


def test_the_newest_version_has_every_column_there_is() -> None:
    """Whoever adds a column to `result` adds a version."""
    own = {column.name for column in schema.result.columns} - {"board_id", "attack_id", "source_id"}
    assert set(row_format.columns(row_format.newest())) == own
    for version in range(1, row_format.newest()):
        assert set(row_format.columns(version)) < set(row_format.columns(version + 1))


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench whose results have one column more: in the table, in its migration, and as the next version of the rows."""
    table = schema.result.to_metadata(sa.MetaData())
    table.append_column(sa.Column("confidence", sa.Float, nullable=False, default=0.5, server_default="0.5"))
    before = databases.migrate

    def migrated(database: Database, version: str = "head") -> None:
        before(database, version)
        add_the_column(database)

    monkeypatch.setattr(schema, "result", table)
    monkeypatch.setitem(row_format.COLUMNS, NOW + 1, (*row_format.COLUMNS[NOW], "confidence"))
    monkeypatch.setattr(databases, "migrate", migrated)
    scratch = databases.scratch_database

    def grown_scratch(path: Path) -> Database:
        found = scratch(path)
        add_the_column(found)
        return found

    monkeypatch.setattr(importing, "scratch_database", grown_scratch)


def add_the_column(database: Database) -> None:
    with writing(database) as connection:
        connection.execute(sa.text("ALTER TABLE result ADD COLUMN confidence FLOAT NOT NULL DEFAULT 0.5"))


def stored_digests(database: Database) -> dict[tuple[int, int], bool]:
    """By version and first example: whether a shard's digest is that of its rows."""
    with database.connect() as connection:
        rows = [dict(row) for row in connection.execute(sa.select(schema.result)).mappings()]
        shards = connection.execute(sa.select(schema.shard)).all()
    return {
        (s.rows_version, s.start): row_format.digest(
            [row for row in rows if s.start <= row["example_idx"] < s.stop], s.rows_version
        )
        == s.rows_sha256
        for s in shards
    }


def test_a_new_column_leaves_old_digests_valid(database: Database, request: pytest.FixtureRequest) -> None:
    key = a_cell(database, a_board(database, 6), "pgd", "s")
    writer.record_shard(database, key, shard(0, [True, False]), 6)
    request.getfixturevalue("grown")
    add_the_column(database)
    assert stored_digests(database) == {(NOW, 0): True}
    writer.record_shard(database, key, shard(2, [True, True]), 6)  # as an attack that knows nothing of it gives it
    known = shard(4, [False, True])
    with_it = dataclasses.replace(known, rows=[{**row, "confidence": 0.9} for row in known.rows])
    writer.record_shard(database, key, with_it, 6)
    assert stored_digests(database) == {(NOW, 0): True, (NOW + 1, 2): True, (NOW + 1, 4): True}
    with writing(database) as connection:
        connection.execute(sa.update(schema.result).values(confidence=0.7))
    assert stored_digests(database) == {(NOW, 0): True, (NOW + 1, 2): False, (NOW + 1, 4): False}
    with writing(database) as connection:
        connection.execute(sa.update(schema.result).values(confidence=0.5, margin=0.7))
    assert set(stored_digests(database).values()) == {False}


def taken(path: Path, folder: Path) -> importing.Imported:
    return importing.import_(path, str(folder / "bench.db"), folder / "bench.images", vaults.published())


def problems(folder: Path) -> list[str]:
    database = open_database(str(folder / "bench.db"), create=False)
    try:
        found = verify(database, folder / "bench.images", vaults.published())
        return [*found.problems, *found.unjudged.values()]
    finally:
        database.dispose()


def test_results_of_before_and_after_a_new_column_are_verified_and_exchanged(
    honest: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "ours"
    shutil.copytree(honest / "results", ours)
    database = open_database(str(ours / "bench.db"), create=False)
    exporting.export(database, ours / "bench.images", tmp_path / "before.zip", with_weights=False)
    request.getfixturevalue("grown")
    add_the_column(database)
    exporting.export(database, ours / "bench.images", tmp_path / "after.zip", with_weights=False)
    database.dispose()
    assert problems(ours) == []
    for name in ("before", "after"):
        assert taken(tmp_path / f"{name}.zip", tmp_path / name).rows == 12
        assert problems(tmp_path / name) == []
    monkeypatch.undo()
    with pytest.raises(
        BenchError, match=rf"after.zip is refused: rows of version {NOW + 1} are not known to this bench"
    ):
        taken(tmp_path / "after.zip", tmp_path / "older")


def changed(path: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The archive with another manifest."""
    content = archives.members(path)
    manifest = json.loads(content["manifest.json"])
    change(manifest)
    archives.write(target, {**content, "manifest.json": json.dumps(manifest).encode()})
    return target


def with_rows_of_version_1(path: Path, target: Path) -> Path:
    """The archive as a bench wrote it whose rows had no column `rounded`."""
    forgery = archives.Forgery(path)
    for columns in forgery.rows.values():
        del columns["rounded"]
    forgery.manifest["rows_version"] = 1
    for row in forgery.tables["shard"]:
        row["rows_version"] = 1
    return forgery.mend().write(target)


def as_format(name: str) -> Callable[[dict[str, Any]], None]:
    """What an older version wrote of the same results."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["format"] = name
        if layout.FORMATS[name].rows_version is not None:
            del manifest["rows_version"]
        for table, missing in layout.FORMATS[name].missing.items():
            for row in manifest["tables"][table]:
                for column in missing:
                    del row[column]

    return change


@pytest.fixture(scope="session")
def packed(honest: Path) -> Path:
    database = open_database(str(honest / "results" / "bench.db"), create=False)
    exporting.export(database, honest / "results" / "bench.images", honest / "formats.zip", with_weights=False)
    database.dispose()
    return honest / "formats.zip"


@pytest.mark.parametrize("name", [name for name in layout.FORMATS if name != layout.WRITTEN])
def test_an_older_format_is_read_with_what_it_does_not_have_filled_in(packed: Path, tmp_path: Path, name: str) -> None:
    rows = packed if layout.FORMATS[name].rows_version is None else with_rows_of_version_1(packed, tmp_path / "1.zip")
    old = changed(rows, tmp_path / "old.zip", as_format(name))
    assert taken(old, tmp_path / "theirs").rows == 12
    assert problems(tmp_path / "theirs") == []
    database = open_database(str(tmp_path / "theirs" / "bench.db"), create=False)
    (board,) = queries.boards(database)
    database.dispose()
    assert {(cell.scope, cell.status) for cell in board.cells} == {(schema.ALL, "done")}
    both = changed(packed, tmp_path / "both.zip", lambda manifest: manifest.update(format=name))
    with pytest.raises(BenchError, match="does not have the table's columns"):
        taken(both, tmp_path / "none")


def set_about(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["tables"]["attack"][-1].update(about_json=value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(format="bench-results-9"), "format is 'bench-results-9', and this bench reads bench-results-1"),
        (lambda m: m.update(format=7), "its format is 7, and this bench reads"),
        (lambda m: m.update(format=["bench-results-1"]), "its format is .'bench-results-1'., and"),
        (lambda m: m.pop("format"), "its format is None, and this bench reads"),
        (lambda m: m.update(rows_version=9), "rows of version 9 are not known to this bench"),
        (lambda m: m.update(rows_version=True), "does not say of which version its rows are"),
        (lambda m: m.pop("rows_version"), "does not say of which version its rows are"),
        (lambda m: m["tables"]["shard"][0].update(rows_version=NOW + 1), f"a shard has rows of version {NOW + 1}"),
        (lambda m: m["tables"]["shard"][0].update(rows_version=None), "a shard has rows of version None"),
        (set_about("[1]"), "about_json has no such form"),
        (set_about('{"label": {"a": 1}}'), "a description holds strings, numbers and lists of strings; its 'label'"),
        (set_about('{"members": [1]}'), "its 'members' is .1."),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_its_name(
    packed: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    with pytest.raises(BenchError, match=said):
        taken(changed(packed, tmp_path / "odd.zip", change), tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_a_description_is_kept_beside_the_row_and_filled_in_later(database: Database) -> None:
    def stored(said: Mapping[str, Any] | None) -> dict[str, Any]:
        row = identity.attack_row("pgd", "1", {"steps": 20}, 0, about=said)
        assert row["fingerprint"] == identity.attack_row("pgd", "1", {"steps": 20}, 0)["fingerprint"]
        assert writer.ensure(database, schema.attack, row) == 1
        with database.connect() as connection:
            return about.from_json(connection.execute(sa.select(schema.attack.c.about_json)).scalar())

    assert stored(None) == {}
    said = {"label": "PGD", "order": 2, "parts": ["a", "b"]}
    assert stored(said) == said
    assert stored(None) == said
    assert stored({"label": "ours"}) == {"label": "ours"}


def test_cells_have_what_their_attack_and_source_say_of_themselves(database: Database) -> None:
    board = a_board(database, 1)
    fill(database, board, {("pgd", "s"): np.array([True])})
    for table, name in ((schema.attack, "PGD"), (schema.source, "Surrogate")):
        with writing(database) as connection:
            connection.execute(sa.update(table).values(about_json=about.to_json({"label": name})))
    (cell,) = queries.boards(database)[0].cells
    assert (cell.attack_about.label, cell.source_about.label) == ("PGD", "Surrogate")


@pytest.mark.parametrize(
    "said", [{"a": None}, {"a": {"b": "c"}}, {"a": [1]}, {1: "a"}, {"a": float("nan")}, {"a": "x" * 70000}, ["a"]]
)
def test_what_is_no_description_is_not_stored(said: Any) -> None:
    with pytest.raises(BenchError, match="a description holds strings, numbers and lists of strings; "):
        about.to_json(said)


def test_an_upgrade_numbers_the_rows_and_takes_passwords_out_of_commands(new_url: Callable[[], str]) -> None:
    url = new_url()
    database = sa.create_engine(url_of(url))
    migrate(database, "0003")
    typed = "bench run --db 'postgresql://me:it'\"'\"'s@host/d' --attack pgd@nominal"
    with database.begin() as connection:
        for command in (typed, "bench run --db 'my results.db'"):
            connection.execute(
                sa.text(
                    "INSERT INTO run (started, command, preset, spec_json, versions_json, device) "
                    "VALUES ('', :command, 'p', '{}', '{}', '')"
                ),
                {"command": command},
            )
    database.dispose()
    upgraded = open_database(url, create=False, upgrade=True)
    with upgraded.connect() as connection:
        commands = connection.execute(sa.select(schema.run.c.command).order_by(schema.run.c.id)).scalars().all()
    assert commands == [
        "bench run --db 'postgresql://me:***@host/d' --attack pgd@nominal",
        "bench run --db 'my results.db'",
    ]
    upgraded.dispose()
