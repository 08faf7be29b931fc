"""Everything that writes: the driver's side of a run, one transaction per shard."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import row_format, schema, shards
from bench.store.database import retry_transient, writing

CellKey = tuple[int, int, int]  # board, attack, source
NOT_IDENTITY = ("about_json", "required_json")
"""Columns that the latest run writes: what an attack or a source says of itself, and the cells that a board must have."""


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """A finished shard: rows for `result` without the ids of its cell, and where its images are."""

    rows: Sequence[Mapping[str, Any]]
    worker: str
    seconds: float
    flags: Mapping[str, int]
    parts: Sequence[str]
    images_file: str | None
    images_sha256: str | None
    examined: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """On how many of its examples a flag was looked for, where not on all."""

    @property
    def examples(self) -> list[int]:
        """Its examples, in their order."""
        return sorted(row["example_idx"] for row in self.rows)


@retry_transient
def start_run(database: Database, values: Mapping[str, Any]) -> int:
    with writing(database) as connection:
        return put_run(connection, values)


def put_run(connection: Connection, values: Mapping[str, Any]) -> int:
    """`start_run` inside a transaction."""
    return new_id(connection, sa.insert(schema.run).values(started=now(), **values))


@retry_transient
def finish_run(database: Database, run_id: int) -> None:
    with writing(database) as connection:
        connection.execute(sa.update(schema.run).where(schema.run.c.id == run_id).values(finished=now()))


@retry_transient
def ensure(database: Database, table: sa.Table, values: Mapping[str, Any]) -> int:
    """The id of the row with this fingerprint; made if it is not there. What is in no fingerprint is brought up to date."""
    with writing(database) as connection:
        found = put(connection, table, values)
        new = {name: values[name] for name in NOT_IDENTITY if values.get(name) not in (None, found.get(name))}
        if new:
            connection.execute(sa.update(table).where(table.c.id == found["id"]).values(**new))
        return int(found["id"])


def put(connection: Connection, table: sa.Table, values: Mapping[str, Any]) -> sa.RowMapping:
    """The row with this fingerprint, as it is here; made if it is not there."""
    wanted = sa.select(table).where(table.c.fingerprint == values["fingerprint"])
    if connection.execute(wanted).first() is None:
        connection.execute(insert_if_absent(connection, table).values(**values))
    return connection.execute(wanted).mappings().one()


@retry_transient
def ensure_cell(database: Database, key: CellKey, values: Mapping[str, Any]) -> None:
    """A row for a cell of one's own; a failed one becomes running again.

    An imported cell that is complete and was judged here stays as it is. Any other gives way: it counted for nothing.
    A cell whose scope was once the survivors keeps it: it is complete without rows of what is broken.
    """
    with writing(database) as connection:
        new = _empty(values, None)
        connection.execute(insert_if_absent(connection, schema.cell).values(**ids(key), **new))
        found = connection.execute(sa.select(schema.cell).where(of_cell(schema.cell, key)).with_for_update()).one()
        if found.imported is None and found.status == "failed":
            _set(connection, key, status="running", error=None)
        elif found.imported is not None and (found.imported != schema.JUDGED or found.status != "done"):
            delete_results(connection, key)
            _set(connection, key, **new)
        if found.imported is None and values.get("scope") == schema.SURVIVORS != found.scope:
            _set(connection, key, scope=schema.SURVIVORS)


def put_imported_cell(connection: Connection, key: CellKey, values: Mapping[str, Any], mark: str) -> None:
    """A row for a cell of somebody else's, JUDGED or UNJUDGED, in place of what is there of it."""
    delete_results(connection, key)
    connection.execute(insert_if_absent(connection, schema.cell).values(**ids(key), **_empty(values, mark)))
    _set(connection, key, **_empty(values, mark))


def delete_results(connection: Connection, key: CellKey) -> None:
    """Empties a cell: its rows, its shards, and the import that they came by."""
    for table in (schema.result, schema.shard, schema.imported_cell):
        connection.execute(sa.delete(table).where(of_cell(table, key)))


def _set(connection: Connection, key: CellKey, **values: Any) -> None:
    connection.execute(sa.update(schema.cell).where(of_cell(schema.cell, key)).values(**values))


def _empty(values: Mapping[str, Any], imported: str | None) -> dict[str, Any]:
    """A cell without results."""
    return {
        **values,
        "status": "running",
        "n_done": 0,
        "n_correct": 0,
        "gradients": 0,
        "queries": 0,
        "seconds": 0.0,
        "flags_json": "{}",
        "examined_json": "{}",
        "doubts_json": "{}",
        "parts_json": "[]",
        "updated": now(),
        "error": None,
        "imported": imported,
    }


@retry_transient
def record_shard(database: Database, key: CellKey, shard: ShardResult, n_examples: int) -> bool:
    """The shard's rows, its done mark and the cell's totals, together or not at all; False if another was first."""
    with writing(database) as connection:
        return put_shard(connection, key, shard, n_examples)


def put_shard(connection: Connection, key: CellKey, shard: ShardResult, n_examples: int) -> bool:
    """`record_shard` inside a transaction."""
    rows = row_format.completed(shard.rows)
    row = connection.execute(sa.select(schema.cell).where(of_cell(schema.cell, key)).with_for_update()).one()
    others = sharing(connection, key, shard.examples)
    if any(other["status"] == "done" for other in others):
        return False
    delete_shards(connection, others)
    connection.execute(
        sa.insert(schema.shard).values(
            **ids(key),
            **shards.bounds(shard.examples),
            status="done",
            attempt=max((other["attempt"] for other in others), default=1),
            worker=shard.worker,
            seconds=shard.seconds,
            images_file=shard.images_file,
            images_sha256=shard.images_sha256,
            rows_sha256=row_format.digest(rows, row_format.newest()),
            rows_version=row_format.newest(),
        )
    )
    connection.execute(sa.insert(schema.result), [{**ids(key), **row} for row in rows])
    done = row.n_done + len(shard.rows)
    _set(
        connection,
        key,
        n_done=done,
        n_correct=row.n_correct + sum(r["correct"] for r in shard.rows),
        gradients=row.gradients + sum(r["gradients"] for r in shard.rows),
        queries=row.queries + sum(r["queries"] for r in shard.rows),
        seconds=row.seconds + shard.seconds,
        flags_json=_added(row.flags_json, shard.flags),
        examined_json=_added(row.examined_json, shard.examined),
        parts_json=json.dumps(list(shard.parts)),
        status="done" if done == n_examples else row.status,
        updated=now(),
    )
    return True


def _added(stored: str, counts: Mapping[str, int]) -> str:
    """Counts by name, as they are stored, with more of them."""
    total = json.loads(stored)
    for name, count in counts.items():
        total[name] = total.get(name, 0) + int(count)
    return json.dumps(total, sort_keys=True)


@retry_transient
def fail_shard(database: Database, key: CellKey, examples: Sequence[int], worker: str, error: str) -> None:
    """Marks a shard of these examples and its cell failed, with the reason; what is stored, by whomever, stays."""
    with writing(database) as connection:
        connection.execute(sa.select(schema.cell.c.status).where(of_cell(schema.cell, key)).with_for_update())
        found = sharing(connection, key, examples)
        if any(shard["status"] == "done" for shard in found):
            return
        delete_shards(connection, found)
        connection.execute(
            sa.insert(schema.shard).values(
                **ids(key),
                **shards.bounds(examples),
                status="failed",
                attempt=max((shard["attempt"] for shard in found), default=1),
                worker=worker,
                seconds=0.0,
                error=error,
            )
        )
        connection.execute(
            sa.update(schema.cell).where(of_cell(schema.cell, key)).values(status="failed", error=error, updated=now())
        )


@retry_transient
def set_doubts(database: Database, key: CellKey, doubts: Mapping[str, str]) -> None:
    """Says what makes the cell's result doubtful: a name and its meaning each."""
    with writing(database) as connection:
        put_doubts(connection, key, doubts)


@retry_transient
def doubts_of(database: Database, board_id: int) -> dict[tuple[int, int], dict[str, str]]:
    """What is stored of the doubts about a board's cells, by attack and source."""
    cell = schema.cell.c
    query = sa.select(cell.attack_id, cell.source_id, cell.doubts_json).where(cell.board_id == board_id)
    with database.connect() as connection:
        return {(attack, source): json.loads(words) for attack, source, words in connection.execute(query)}


def put_doubts(connection: Connection, key: CellKey, doubts: Mapping[str, str]) -> None:
    """`set_doubts` inside a transaction."""
    _set(connection, key, doubts_json=json.dumps(dict(doubts), sort_keys=True))


@retry_transient
def totals(database: Database, key: CellKey) -> tuple[int, int]:
    """How many examples a cell has rows of, and how many of those are right."""
    query = sa.select(schema.cell.c.n_done, schema.cell.c.n_correct).where(of_cell(schema.cell, key))
    with database.connect() as connection:
        done, right = connection.execute(query).one()
    return int(done), int(right)


@retry_transient
def done_examples(database: Database, key: CellKey) -> set[int]:
    """The examples of the cell's finished shards."""
    query = sa.select(schema.shard).where(of_cell(schema.shard, key), schema.shard.c.status == "done")
    with database.connect() as connection:
        found = connection.execute(query).mappings().all()
    return {example for shard in found for example in shards.examples_of(shard)}


def new_id(connection: Connection, insert: sa.Insert) -> int:
    key = connection.execute(insert).inserted_primary_key
    assert key is not None
    return int(key[0])


def insert_if_absent(connection: Connection, table: sa.Table) -> Any:
    """An insert that does nothing where another driver was faster."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    return dialect.insert(table).on_conflict_do_nothing()


def sharing(connection: Connection, key: CellKey, examples: Sequence[int]) -> list[Mapping[str, Any]]:
    """The cell's shards that have one of these examples (in their order)."""
    wanted, shard = set(examples), schema.shard
    near = (of_cell(shard, key), shard.c.start <= max(wanted), shard.c.stop > min(wanted))
    found = connection.execute(sa.select(shard).where(*near)).mappings()
    return [dict(one) for one in found if not wanted.isdisjoint(shards.examples_of(one))]


def delete_shards(connection: Connection, chosen: Sequence[Mapping[str, Any]]) -> None:
    """Takes these rows of `shard` away; their results, if they have any, stay."""
    key = schema.shard.primary_key.columns
    for one in chosen:
        connection.execute(sa.delete(schema.shard).where(*(column == one[column.name] for column in key)))


def of_cell(table: sa.Table, key: CellKey) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.board_id == key[0], table.c.attack_id == key[1], table.c.source_id == key[2])


def ids(key: CellKey) -> dict[str, int]:
    return {"board_id": key[0], "attack_id": key[1], "source_id": key[2]}
