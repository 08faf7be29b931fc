"""What was checked of a board's sources, once each, and what was found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.api import flags
from bench.store import schema
from bench.store.database import retry_transient, writing
from bench.store.writer import insert_if_absent, now


@dataclasses.dataclass(frozen=True)
class SourceHealth:
    """What is known of a source in a board's ball: by flag, on how many examples it was looked for, and how many show it."""

    flags: Mapping[str, int]
    examined: Mapping[str, int]
    seconds: float
    error: str | None = None
    """Why it could not be checked."""

    def doubts(self) -> dict[str, str]:
        """What makes attacks with gradients on the source doubtful, in words for people."""
        found = {name: (count, self.examined.get(name, 0)) for name, count in self.flags.items() if self.is_doubt(name)}
        return {
            name: f"{flags.MEANINGS.get(name, name)} ({count} of {examined} examples, by the source's check)"
            for name, (count, examined) in found.items()
        }

    def is_doubt(self, check: str) -> bool:
        """Whether so many examples show this flag that attacks on the source are doubtful."""
        return flags.is_doubt(check, self.flags.get(check, 0), self.examined.get(check, 0))


@retry_transient
def record(database: Database, board_id: int, source_id: int, found: SourceHealth) -> None:
    """Writes down what was found, unless it is known already: only what could not be checked before gives way."""
    table = schema.health
    here = (table.c.board_id == board_id) & (table.c.source_id == source_id)
    values = {
        "flags_json": json.dumps(dict(found.flags), sort_keys=True),
        "examined_json": json.dumps(dict(found.examined), sort_keys=True),
        "seconds": found.seconds,
        "error": found.error,
        "updated": now(),
    }
    with writing(database) as connection:
        new = insert_if_absent(connection, table).values(board_id=board_id, source_id=source_id, **values)
        connection.execute(new)
        connection.execute(sa.update(table).where(here, table.c.error.is_not(None)).values(**values))


def of_board(connection: Connection, board_id: int) -> dict[int, SourceHealth]:
    """What is known of a board's sources, by their ids."""
    query = sa.select(schema.health).where(schema.health.c.board_id == board_id)
    return {
        row.source_id: SourceHealth(json.loads(row.flags_json), json.loads(row.examined_json), row.seconds, row.error)
        for row in connection.execute(query)
    }
