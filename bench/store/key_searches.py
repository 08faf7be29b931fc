"""Key searches in the store: what writes them during a search. Reading them is `queries.key_searches`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from bench.store import schema, writer
from bench.store.database import writing
from bench.store.queries import KeyGuess


def start(engine: Engine, values: Mapping[str, Any], command: str) -> int:
    """The id of the search with this fingerprint, made if it is not there."""
    now = writer.now()
    return writer.ensure(engine, schema.key_search, {**values, "command": command, "started": now, "updated": now})


def record(engine: Engine, search_id: int, command: str, guesses: Sequence[KeyGuess]) -> None:
    """Scored guesses, in one transaction.

    A guess that is there already is replaced if it is now scored on more images.
    """
    table = schema.key_guess
    with writing(engine) as connection:
        rows = connection.execute(
            sa.select(table.c.guess, table.c.images).where(
                table.c.search_id == search_id, table.c.guess.in_([guess.guess for guess in guesses])
            )
        )
        there = {row.guess: row.images for row in rows}
        new = [guess for guess in guesses if guess.images > there.get(guess.guess, -1)]
        old = [guess.guess for guess in new if guess.guess in there]
        connection.execute(sa.delete(table).where(table.c.search_id == search_id, table.c.guess.in_(old)))
        if new:
            connection.execute(
                sa.insert(table), [{"search_id": search_id, **dataclasses.asdict(guess)} for guess in new]
            )
        connection.execute(
            sa.update(schema.key_search)
            .where(schema.key_search.c.id == search_id)
            .values(updated=writer.now(), command=command)
        )
