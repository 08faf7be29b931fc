"""The examples of boards, a few bytes of digest each: whether some are the first of others is read from them.

A run writes them for its own examples, so that it does not matter which board was there first, nor whether its run had
all test images or a sample of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import schema, writer
from bench.store.database import reading, retry_transient, writing

if TYPE_CHECKING:
    from bench.store.queries import Board

DIGEST_BYTES = 8


@retry_transient
def keep(database: Database, examples_sha256: str, digests: bytes) -> None:
    """Stores the digests of a set of examples, DIGEST_BYTES each, in their order."""
    values = {"examples_sha256": examples_sha256, "digests": digests}
    with writing(database) as connection:
        connection.execute(writer.insert_if_absent(connection, schema.example_set).values(**values))


def found(database: Database | Connection, boards: Iterable[Board]) -> dict[str, bytes]:
    """The digests of the boards' examples, by the sha256 of all of them, as far as they are known."""
    wanted = {board.examples_sha256 for board in boards}
    query = sa.select(schema.example_set.c.examples_sha256, schema.example_set.c.digests)
    with reading(database) as connection:
        return {sha256: bytes(digests) for sha256, digests in connection.execute(query) if sha256 in wanted}


def nested(first: Board, second: Board, digests: dict[str, bytes]) -> bool:
    """Whether the examples of one board are known to be the first of the other's."""
    own = [(digests.get(board.examples_sha256), board.n_examples) for board in (first, second)]
    known = [sequence for sequence, count in own if sequence is not None and len(sequence) == DIGEST_BYTES * count]
    if len(known) < 2:
        return False
    short, long = sorted(known, key=len)
    return long.startswith(short)
