"""The tables. A `result` row is one example under one attack from one source on one board.

The unperturbed images are a cell like any other (attack `clean`, source `clean`), so that Best Known is the minimum
over all rows of an example.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
)

CLEAN = "clean"
JUDGED, UNJUDGED = "judged", "unjudged"
"""Of an imported cell, in `cell.imported`: whether every image of it was judged here."""
ALL, SURVIVORS = "all", "survivors"
"""Of a cell, in `cell.scope`: whether it is complete with a row for every example, or also without one for those that
another attack has broken (`completeness`)."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)


def _settings_table(name: str, *columns: Column[Any]) -> Table:
    """Something with settings, known by its fingerprint."""
    return Table(
        name,
        metadata,
        Column("id", Integer, primary_key=True),
        Column("name", String(200), nullable=False),
        Column("version", String(50), nullable=False),
        Column("params_json", Text, nullable=False),
        Column("fingerprint", String(64), nullable=False, unique=True),
        *columns,
    )


run = Table(
    "run",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("started", String(32), nullable=False),
    Column("finished", String(32)),
    Column("command", Text, nullable=False),
    Column("preset", String(50), nullable=False),
    Column("spec_json", Text, nullable=False),
    Column("versions_json", Text, nullable=False),
    Column("device", String(200), nullable=False),
    Column("git_commit", String(64)),
    # The names of the cells in the order that examples went through them, by defence and norm
    Column("order_json", Text),
)
defence = _settings_table(
    "defence",
    Column("keyed", Boolean, nullable=False),
    Column("key_id", String(64)),
    Column("weights_sha256", String(64), nullable=False),
    Column("description", Text, nullable=False),
)
attack = _settings_table("attack", Column("about_json", Text))  # what it says of itself; no part of its fingerprint
source = _settings_table("source", Column("about_json", Text))
board = Table(
    "board",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("defence_id", Integer, ForeignKey("defence.id"), nullable=False),
    Column("dataset", String(200), nullable=False),
    Column("examples_sha256", String(64), nullable=False),
    Column("norm", String(10), nullable=False),
    Column("epsilon", Float, nullable=False),
    Column("n_examples", Integer, nullable=False),
    Column("fingerprint", String(64), nullable=False, unique=True),
    Column("required_json", Text),  # the cells that its latest run's preset asks for; no part of its fingerprint
)
example_set = Table(  # which examples are the first of others: see `example_sets`
    "example_set",
    metadata,
    Column("examples_sha256", String(64), nullable=False),
    Column("digests", LargeBinary, nullable=False),
    PrimaryKeyConstraint("examples_sha256"),
)


def _cell_key() -> list[Column[Any]]:
    return [
        Column("board_id", Integer, ForeignKey("board.id"), nullable=False),
        Column("attack_id", Integer, ForeignKey("attack.id"), nullable=False),
        Column("source_id", Integer, ForeignKey("source.id"), nullable=False),
    ]


cell = Table(
    "cell",
    metadata,
    *_cell_key(),
    Column("run_id", Integer, ForeignKey("run.id"), nullable=False),
    Column("strategy", String(50), nullable=False),
    Column("inside_threat_model", Boolean, nullable=False),
    Column("status", String(10), nullable=False),  # running, done or failed
    Column("n_done", Integer, nullable=False),
    Column("n_correct", Integer, nullable=False),
    Column("gradients", BigInteger, nullable=False),
    Column("queries", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("flags_json", Text, nullable=False),
    Column("doubts_json", Text, nullable=False),  # what makes the cell's result doubtful, with its meaning
    Column("parts_json", Text, nullable=False),  # the names behind result.part
    Column("error", Text),
    Column("updated", String(32), nullable=False),
    Column("imported", String(20)),  # NULL for this database's own runs; else JUDGED or UNJUDGED
    # On how many examples a flag was looked for, where not on all: what probes of its attack examined
    Column("examined_json", Text, nullable=False, server_default="{}"),
    Column("scope", String(10), nullable=False, server_default=ALL),
    PrimaryKeyConstraint("board_id", "attack_id", "source_id"),
)
health = Table(  # what was found of a source with gradients, once per board
    "health",
    metadata,
    Column("board_id", Integer, ForeignKey("board.id"), nullable=False),
    Column("source_id", Integer, ForeignKey("source.id"), nullable=False),
    Column("flags_json", Text, nullable=False),
    Column("examined_json", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("error", Text),  # why it could not be checked
    Column("updated", String(32), nullable=False),
    PrimaryKeyConstraint("board_id", "source_id"),
)
shard = Table(
    "shard",
    metadata,
    Column("board_id", Integer, nullable=False),
    Column("attack_id", Integer, nullable=False),
    Column("source_id", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("stop", Integer, nullable=False),
    Column("status", String(10), nullable=False),  # claimed, done or failed
    Column("attempt", Integer, nullable=False),
    Column("worker", String(100), nullable=False),
    Column("seconds", Float, nullable=False),
    Column("images_file", Text),
    Column("images_sha256", String(64)),
    Column("error", Text),
    Column("owner", String(200)),  # the driver that has it in hand, while it is claimed
    Column("expires", Float),  # when that claim ends, by the database's clock
    Column("rows_sha256", String(64)),  # of all the rows' values, so that no column of a row changes unseen
    Column("rows_version", Integer),  # the version of `row_format` that the digest was made by
    Column("examples_json", Text),  # which of those from start to stop; NULL: all of them (`shards`)
    PrimaryKeyConstraint("board_id", "attack_id", "source_id", "start", "stop"),
    ForeignKeyConstraint(["board_id", "attack_id", "source_id"], ["cell.board_id", "cell.attack_id", "cell.source_id"]),
)
result = Table(
    "result",
    metadata,
    # The order of this key is what makes Best Known one pass over the table without a sort (docs/performance.md).
    Column("board_id", Integer, ForeignKey("board.id"), nullable=False),
    Column("example_idx", Integer, nullable=False),
    Column("attack_id", Integer, ForeignKey("attack.id"), nullable=False),
    Column("source_id", Integer, ForeignKey("source.id"), nullable=False),
    Column("correct", SmallInteger, nullable=False),  # 0 or 1, on the defended model
    Column("pred", SmallInteger, nullable=False),
    Column("label", SmallInteger, nullable=False),
    Column("margin", Float, nullable=False),  # of the defended model: z_y − max other z
    Column("distance", Float, nullable=False),
    Column("source_success", SmallInteger, nullable=False),
    Column("source_margin", Float, nullable=False),
    Column("restart", SmallInteger, nullable=False),
    Column("target", SmallInteger, nullable=False),
    Column("part", SmallInteger, nullable=False),
    Column("gradients", Integer, nullable=False),
    Column("queries", Integer, nullable=False),
    Column("rounded", SmallInteger),  # as `correct`, of the image rounded to eight bits; NULL: not judged rounded
    PrimaryKeyConstraint("board_id", "example_idx", "attack_id", "source_id"),
    sqlite_with_rowid=False,
)
imported_file = Table(
    "imported_file",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("sha256", String(64), nullable=False, unique=True),  # empty for what came before schema 0005
    Column("taken", String(32), nullable=False),
)
imported_row = Table(  # the rows that an import made, so that it can be taken out again
    "imported_row",
    metadata,
    Column("import_id", Integer, ForeignKey("imported_file.id"), nullable=False),
    Column("kind", String(10), nullable=False),  # run, defence, attack, source or board
    Column("row_id", Integer, nullable=False),
    PrimaryKeyConstraint("import_id", "kind", "row_id"),
)
imported_cell = Table(  # the cells that an import made, with all their rows
    "imported_cell",
    metadata,
    Column("board_id", Integer, nullable=False),
    Column("attack_id", Integer, nullable=False),
    Column("source_id", Integer, nullable=False),
    Column("import_id", Integer, ForeignKey("imported_file.id"), nullable=False),
    PrimaryKeyConstraint("board_id", "attack_id", "source_id"),
    ForeignKeyConstraint(["board_id", "attack_id", "source_id"], ["cell.board_id", "cell.attack_id", "cell.source_id"]),
)
key_search = Table(
    "key_search",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("defence_id", Integer, ForeignKey("defence.id"), nullable=False),
    Column("dataset", String(200), nullable=False),
    Column("split", String(10), nullable=False),  # training, or test
    Column("n_images", Integer, nullable=False),
    Column("images_sha256", String(64), nullable=False),
    Column("inside_threat_model", Boolean, nullable=False),
    Column("defended_accuracy", Float, nullable=False),  # the public figure: of the test images, with the private key
    Column("defended_images", Integer, nullable=False),
    Column("race_floor", Float, nullable=False),
    Column("race_error", Float, nullable=False),
    Column("command", Text, nullable=False),  # the latest one that added to it
    Column("started", String(32), nullable=False),
    Column("updated", String(32), nullable=False),
    Column("fingerprint", String(64), nullable=False, unique=True),
)
key_guess = Table(
    "key_guess",
    metadata,
    Column("search_id", Integer, ForeignKey("key_search.id"), nullable=False),
    Column("guess", BigInteger, nullable=False, autoincrement=False),  # the attacker's own: no secret
    Column("origin", String(200), nullable=False),
    Column("correct", Integer, nullable=False),
    Column("images", Integer, nullable=False),
    Column("stopped", Integer),  # the images after which the race drops it; null if it never does
    Column("seconds", Float, nullable=False),
    Column("raced_seconds", Float, nullable=False),
    Column("fresh_correct", Integer),  # right on fresh images, which only a guess that did well is scored on
    Column("fresh_images", Integer),
    PrimaryKeyConstraint("search_id", "guess"),
    sqlite_with_rowid=False,
)
Index("ix_board_defence", board.c.defence_id)
Index(  # only rows that were judged rounded are in it, so that nobody else pays for it
    "ix_result_rounded",
    result.c.board_id,
    result.c.attack_id,
    result.c.source_id,
    result.c.correct,
    result.c.rounded,
    sqlite_where=result.c.rounded.is_not(None),
    postgresql_where=result.c.rounded.is_not(None),
)
