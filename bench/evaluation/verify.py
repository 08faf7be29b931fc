"""Verifies a database: rows against their fingerprints, records against rows, and every stored image judged again."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.api import BenchError
from bench.evaluation.record_checks import check_records
from bench.evaluation.rejudging import CannotJudge, Elsewhere, Judge
from bench.evaluation.stored_board import Findings, Row, StoredBoard
from bench.store import identity, schema
from bench.support.progress import Track, untracked
from bench.vault.base import Vault


def verify(
    database: Database, folder: Path, vault: Vault, track: Track = untracked, elsewhere: Elsewhere | None = None
) -> Findings:
    """Goes over every board of the database. `elsewhere` is what came with somebody's results."""
    findings = Findings()
    with database.connect() as connection:
        tables, rows = _tables(connection), _rows_per_board(connection)
    _check_identities(tables, findings)
    with track("verifying", sum(rows.values())) as tracker:
        judge = Judge(folder, vault, elsewhere or Elsewhere(), tracker)
        for row in tables["board"].values():
            board, end = StoredBoard(database, tables, row, findings), tracker.done + rows[row["id"]]
            check_records(board)
            try:
                judge.judge(board)
            except CannotJudge as error:
                findings.unjudged[row["id"]] = f"{board.name}: {error}"
            except BenchError as error:
                findings.problems.append(f"{board.name}: {error}")
            tracker.skip(end - tracker.done)
    return findings


def _rows_per_board(connection: Connection) -> Mapping[int, int]:
    query = sa.select(schema.cell.c.board_id, sa.func.sum(schema.cell.c.n_done)).group_by(schema.cell.c.board_id)
    return collections.Counter({board: int(count) for board, count in connection.execute(query)})


def _tables(connection: Connection) -> dict[str, dict[int, Row]]:
    tables = (schema.run, schema.defence, schema.attack, schema.source, schema.board, schema.key_search)
    return {
        table.name: {row["id"]: row for row in connection.execute(sa.select(table).order_by(table.c.id)).mappings()}
        for table in tables
    }


def _check_identities(tables: Mapping[str, Mapping[int, Row]], findings: Findings) -> None:
    """Every setting that made a number is in a fingerprint: of a defence, an attack, a source, a board, a key search."""
    defences = tables["defence"]
    computed: dict[str, Callable[[Row], str]] = {
        "defence": identity.of_defence,
        "attack": identity.of_attack,
        "source": identity.of_source,
        "board": lambda row: identity.of_board(row, defences[row["defence_id"]]["fingerprint"]),
        "key_search": lambda row: identity.of_key_search(row, defences[row["defence_id"]]["fingerprint"]),
    }
    for kind, of in computed.items():
        for row in tables[kind].values():
            try:
                holds = of(row) == row["fingerprint"]
            except (ValueError, TypeError, AttributeError):  # its JSON is no JSON any more
                holds = False
            if not holds:
                named = f"{kind.replace('_', ' ')} {row['id']} ({_named(row, defences)})"
                findings.problems.append(f"{named}: its settings were changed (they do not fit its fingerprint)")


def _named(row: Row, defences: Mapping[int, Row]) -> str:
    if "name" in row:
        return str(row["name"])
    if "norm" in row:
        return f"{row['norm']}, {row['n_examples']} examples"
    return f"{defences[row['defence_id']]['name']}, {row['n_images']} {row['split']} images"
