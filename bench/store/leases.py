"""Who works on which shard: claims in the `shard` table that end by themselves, so that drivers share a database.

A claim ends by the database's clock, never by a driver's. It only saves work: what makes a row count once is the
transaction that stores it, so a clock that jumps costs a shard computed twice, at most.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import schema, shards
from bench.store.database import retry_transient, writing
from bench.store.writer import CellKey, delete_shards, ids, of_cell, sharing

SECONDS = 180.0


class Claims:
    """The shards that this driver has in hand."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.owner = f"{_machine()}/{os.getpid()}/{_started(os.getpid())}/{uuid.uuid4().hex[:8]}"
        self._renewed = time.monotonic()

    @retry_transient
    def take(self, key: CellKey, examples: Sequence[int]) -> list[int]:
        """Claims those of the examples (in their order) that are neither stored nor in another driver's hands."""
        with writing(self._database) as connection:
            lock_cell(connection, key)
            now = connection.execute(sa.select(clock(connection))).scalar_one()
            others = sharing(connection, key, examples)
            taken = [s for s in others if s["status"] == "done" or (s["status"] == "claimed" and self._holds(s, now))]
            free = sorted(set(examples).difference(*map(shards.examples_of, taken)))
            if not free:
                return []
            own = shards.bounds(free)
            same = [s for s in others if (s["start"], s["stop"]) == (own["start"], own["stop"])]
            ended = [s for s in others if s["status"] == "claimed" and s not in taken]
            delete_shards(connection, [*ended, *(s for s in same if s not in ended)])
            connection.execute(
                sa.insert(schema.shard).values(
                    **ids(key),
                    **own,
                    status="claimed",
                    attempt=max((s["attempt"] for s in same), default=0) + 1,
                    worker="",
                    seconds=0.0,
                    owner=self.owner,
                    expires=now + SECONDS,
                )
            )
            return free

    def renew(self) -> None:
        """Puts off the end of every claim, now and then; to be called at least every minute."""
        if time.monotonic() - self._renewed > SECONDS / 4:
            self._renewed = time.monotonic()
            self._put_off()

    @retry_transient
    def _put_off(self) -> None:
        with writing(self._database) as connection:
            connection.execute(sa.update(schema.shard).where(*self._own()).values(expires=clock(connection) + SECONDS))

    def release(self) -> None:
        """Gives every claim back: the driver ends, or stops for a while."""
        with writing(self._database) as connection:
            connection.execute(sa.delete(schema.shard).where(*self._own()))

    def _own(self) -> list[sa.ColumnElement[bool]]:
        return [schema.shard.c.owner == self.owner, schema.shard.c.status == "claimed"]

    def _holds(self, shard: Mapping[str, Any], now: float) -> bool:
        """Whether another driver still has the shard: its claim has not ended, and it is not known to be dead.

        A claim that ends later than any claim can was made before the clock was set back: it counts for nothing.
        """
        if shard["owner"] == self.owner or not now < shard["expires"] <= now + SECONDS:
            return False
        machine, pid, started, _ = shard["owner"].split("/")
        return bool(machine != _machine() or _started(int(pid)) == started)


@retry_transient
def waiting_for(database: Database, keys: Collection[CellKey]) -> int:
    """How many shards of these cells are in somebody's hands."""
    query = sa.select(schema.shard.c.board_id, schema.shard.c.attack_id, schema.shard.c.source_id).where(
        schema.shard.c.status == "claimed"
    )
    with database.connect() as connection:
        return sum(tuple(row) in set(keys) for row in connection.execute(query))


def clock(connection: Connection) -> sa.ColumnElement[float]:
    """The database's own clock in seconds, in SQL."""
    if connection.dialect.name == "sqlite":
        return (sa.func.julianday("now", type_=sa.Float) - 2440587.5) * 86400.0
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Float)


def lock_cell(connection: Connection, key: CellKey) -> None:
    """Makes other drivers that write to this cell wait; SQLite's writers wait for each other as it is."""
    connection.execute(sa.select(schema.cell.c.status).where(of_cell(schema.cell, key)).with_for_update())


def _machine() -> str:
    """What tells machines and containers apart: process numbers mean nothing beyond it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:  # not Linux
        boot, space = "", ""
    return f"{socket.gethostname()[:80]}-{boot}-{space}"


def _started(pid: int) -> str:
    """When a process started, so that a number used again is not taken for the old process; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _answers(pid)


def _answers(pid: int) -> str:
    """The same where there is no /proc: no more than whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "there"
