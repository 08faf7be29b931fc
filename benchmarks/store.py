"""All Best Known and Best Adversary numbers from 10 million synthetic rows: how long it takes, and that they are right.

python -m benchmarks.store [--boards 10] [--examples 10000] [--attacks 4] [--sources 25] [--db FILE]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import queries, schema
from bench.store.database import open_database, writing


def fill(
    database: Database, boards: int, examples: int, attacks: int, sources: int, answers: bool = False
) -> dict[int, int]:
    """Writes the rows; returns Best Known of every board, computed from the arrays that were written.

    With `answers`, every row has a label, an answer and a margin that fit.
    """
    random, expected = np.random.default_rng(0), {}
    insert = f"INSERT INTO result VALUES ({','.join('?' * 17)})"
    cells = [(1, 1)] + [(a, s) for a in range(2, attacks + 2) for s in range(2, sources + 2)]
    with writing(database) as connection:
        run = {"id": 1, "started": "2020", "command": "", "preset": "synthetic", "device": ""}
        connection.execute(sa.insert(schema.run).values(spec_json="{}", versions_json="{}", **run))
        for table, letter, count in ((schema.attack, "a", attacks), (schema.source, "s", sources)):
            for identity, name in enumerate(["clean", *(f"{letter}{i}" for i in range(count))], 1):
                connection.execute(sa.insert(table).values(id=identity, **_thing(name)))
        for board in range(1, boards + 1):
            correct = random.random((examples, len(cells))) < random.uniform(0.97, 1.0)
            expected[board] = int(correct.all(axis=1).sum())
            _board(connection, board, examples)
            for (attack, source), n_correct in zip(cells, correct.sum(axis=0).tolist(), strict=True):
                _cell(connection, (board, attack, source), examples, n_correct)
            rows = _rows(board, correct, cells, random if answers else None)
            connection.connection.cursor().executemany(insert, rows)
    return expected


def _thing(name: str) -> dict[str, str]:
    return {"name": name, "fingerprint": name, "version": "1", "params_json": "{}"}


def _board(connection: Connection, identity: int, examples: int) -> None:
    """A board with a defence of its own, both of this id."""
    connection.execute(
        sa.insert(schema.defence).values(
            id=identity, keyed=True, key_id="x", weights_sha256="", description="", **_thing(f"d{identity}")
        )
    )
    connection.execute(
        sa.insert(schema.board).values(
            id=identity, defence_id=identity, dataset="synthetic", examples_sha256="", norm="linf", epsilon=8 / 255,
            n_examples=examples, fingerprint=f"b{identity}",
        )
    )  # fmt: skip


def _cell(connection: Connection, key: tuple[int, int, int], examples: int, n_correct: int) -> None:
    board, attack, source = key
    connection.execute(
        sa.insert(schema.cell).values(
            board_id=board, attack_id=attack, source_id=source, run_id=1, strategy="x", inside_threat_model=True,
            status="done", n_done=examples, n_correct=n_correct, gradients=0, queries=0, seconds=0, flags_json="{}",
            doubts_json="{}", parts_json="[]", updated="2020",
        )
    )  # fmt: skip


def _rows(
    board: int, correct: np.ndarray, cells: list[tuple[int, int]], random: np.random.Generator | None
) -> Iterable[tuple[object, ...]]:
    """The rows of a board in the order of the primary key, from N×cells answers."""
    shape = correct.shape
    label = np.zeros(shape, np.int64)
    pred, margin = label, np.zeros(shape)
    if random is not None:
        label = np.broadcast_to(np.arange(shape[0])[:, None] % 10, shape)
        pred = np.where(correct, label, (label + random.integers(1, 10, shape)) % 10)
        margin = np.where(correct, 1, -1) * random.integers(1, 1000, shape) / 100
    example = np.broadcast_to(np.arange(shape[0])[:, None], shape)
    attack, source = (np.broadcast_to(np.array(ids), shape) for ids in zip(*cells, strict=True))
    columns = [a.ravel().tolist() for a in (example, attack, source, correct.astype(np.int64), pred, label, margin)]
    rest = (0.03, 0, 0.0, 0, -1, -1, 100, 0, None)
    return ((board, *row, *rest) for row in zip(*columns, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("boards", 10), ("examples", 10_000), ("attacks", 4), ("sources", 25)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--db", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.db or Path(folder, "store.db")
        database = open_database(str(path), create=True)
        began = time.monotonic()
        expected = fill(database, options.boards, options.examples, options.attacks, options.sources)
        rows = options.boards * options.examples * (options.attacks * options.sources + 1)
        print(f"{rows:,} rows written in {time.monotonic() - began:.1f} s, {path.stat().st_size / 2**20:.0f} MiB")
        database = open_database(str(path), create=False)
        for run in range(3):
            began = time.monotonic()
            found = queries.boards(database)
            print(f"run {run + 1}: all Best Known and Best Adversary numbers in {time.monotonic() - began:.2f} s")
        assert {board.id: board.best_known for board in found} == expected, "the numbers are wrong"
        print("and they equal those computed from the arrays")


if __name__ == "__main__":
    main()
