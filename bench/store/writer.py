"""Everything that writes: the driver's side of a run, one transaction a shard."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from bench.store import schema
from bench.store.database import writing

CellKey = tuple[int, int, int]  # board, attack, source


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """A finished shard: rows for `result` without the ids of its cell, and where its images are."""

    start: int
    stop: int
    rows: Sequence[Mapping[str, Any]]
    worker: str
    seconds: float
    flags: Mapping[str, int]
    parts: Sequence[str]
    images_file: str | None
    images_sha256: str | None


def start_run(engine: Engine, values: Mapping[str, Any]) -> int:
    with writing(engine) as connection:
        return _new_id(connection, sa.insert(schema.run).values(started=now(), **values))


def finish_run(engine: Engine, run_id: int) -> None:
    with writing(engine) as connection:
        connection.execute(sa.update(schema.run).where(schema.run.c.id == run_id).values(finished=now()))


def ensure(engine: Engine, table: sa.Table, values: Mapping[str, Any]) -> int:
    """The id of the row with this fingerprint; made if it is not there."""
    with writing(engine) as connection:
        wanted = table.c.fingerprint == values["fingerprint"]
        found = connection.execute(sa.select(table.c.id).where(wanted)).scalar()
        if found is None:
            found = _new_id(connection, sa.insert(table).values(**values))
        return int(found)


def ensure_cell(engine: Engine, key: CellKey, values: Mapping[str, Any]) -> None:
    """A row for the cell; a failed one becomes running again."""
    with writing(engine) as connection:
        found = connection.execute(sa.select(schema.cell.c.status).where(_is(schema.cell, key))).scalar()
        if found is None:
            connection.execute(
                sa.insert(schema.cell).values(
                    **_ids(key),
                    **values,
                    status="running",
                    n_done=0,
                    n_correct=0,
                    gradients=0,
                    queries=0,
                    seconds=0.0,
                    flags_json="{}",
                    doubts_json="{}",
                    parts_json="[]",
                    updated=now(),
                )
            )
        elif found == "failed":
            connection.execute(sa.update(schema.cell).where(_is(schema.cell, key)).values(status="running", error=None))


def record_shard(engine: Engine, key: CellKey, shard: ShardResult, n_examples: int) -> None:
    """The shard's rows, its done mark and the cell's totals, together or not at all."""
    with writing(engine) as connection:
        if _already_done(connection, key, shard.start, shard.stop):
            return
        connection.execute(
            sa.delete(schema.shard).where(
                _is(schema.shard, key), schema.shard.c.start == shard.start, schema.shard.c.stop == shard.stop
            )
        )
        connection.execute(
            sa.insert(schema.shard).values(
                **_ids(key),
                start=shard.start,
                stop=shard.stop,
                status="done",
                attempt=1,
                worker=shard.worker,
                seconds=shard.seconds,
                images_file=shard.images_file,
                images_sha256=shard.images_sha256,
            )
        )
        connection.execute(sa.insert(schema.result), [{**_ids(key), **row} for row in shard.rows])
        row = connection.execute(sa.select(schema.cell).where(_is(schema.cell, key))).one()
        flags = json.loads(row.flags_json)
        for name, count in shard.flags.items():
            flags[name] = flags.get(name, 0) + int(count)
        done = row.n_done + len(shard.rows)
        connection.execute(
            sa.update(schema.cell)
            .where(_is(schema.cell, key))
            .values(
                n_done=done,
                n_correct=row.n_correct + sum(r["correct"] for r in shard.rows),
                gradients=row.gradients + sum(r["gradients"] for r in shard.rows),
                queries=row.queries + sum(r["queries"] for r in shard.rows),
                seconds=row.seconds + shard.seconds,
                flags_json=json.dumps(flags, sort_keys=True),
                parts_json=json.dumps(list(shard.parts)),
                status="done" if done == n_examples else row.status,
                updated=now(),
            )
        )


def fail_shard(engine: Engine, key: CellKey, start: int, stop: int, worker: str, error: str) -> None:
    """Marks a shard and its cell failed, with the reason; what the cell has done so far stays."""
    with writing(engine) as connection:
        wanted = sa.and_(_is(schema.shard, key), schema.shard.c.start == start, schema.shard.c.stop == stop)
        attempt = connection.execute(sa.select(schema.shard.c.attempt).where(wanted)).scalar() or 0
        connection.execute(sa.delete(schema.shard).where(wanted))
        connection.execute(
            sa.insert(schema.shard).values(
                **_ids(key),
                start=start,
                stop=stop,
                status="failed",
                attempt=attempt + 1,
                worker=worker,
                seconds=0.0,
                error=error,
            )
        )
        connection.execute(
            sa.update(schema.cell).where(_is(schema.cell, key)).values(status="failed", error=error, updated=now())
        )


def set_doubts(engine: Engine, key: CellKey, doubts: Mapping[str, str]) -> None:
    """Says what makes the cell's result doubtful: a name and its meaning each."""
    text = json.dumps(dict(doubts), sort_keys=True)
    with writing(engine) as connection:
        connection.execute(sa.update(schema.cell).where(_is(schema.cell, key)).values(doubts_json=text))


def done_ranges(engine: Engine, key: CellKey) -> list[tuple[int, int]]:
    """The example ranges of the cell's finished shards, in order."""
    with engine.connect() as connection:
        query = sa.select(schema.shard.c.start, schema.shard.c.stop).where(
            _is(schema.shard, key), schema.shard.c.status == "done"
        )
        return sorted((row.start, row.stop) for row in connection.execute(query))


def _new_id(connection: Connection, insert: sa.Insert) -> int:
    key = connection.execute(insert).inserted_primary_key
    assert key is not None
    return int(key[0])


def _already_done(connection: Connection, key: CellKey, start: int, stop: int) -> bool:
    """Whether any of these examples is stored already, by another driver on the same database."""
    overlap = (
        sa.select(sa.func.count())
        .select_from(schema.shard)
        .where(
            _is(schema.shard, key),
            schema.shard.c.status == "done",
            schema.shard.c.start < stop,
            schema.shard.c.stop > start,
        )
    )
    return bool(connection.execute(overlap).scalar())


def _is(table: sa.Table, key: CellKey) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.board_id == key[0], table.c.attack_id == key[1], table.c.source_id == key[2])


def _ids(key: CellKey) -> dict[str, int]:
    return {"board_id": key[0], "attack_id": key[1], "source_id": key[2]}
