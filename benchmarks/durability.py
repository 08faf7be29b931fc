"""What a shard costs to store so that no power cut takes it: SQLite's `synchronous=FULL`, which bench uses, and NORMAL.

python -m benchmarks.durability [--shards 100] [--rows 50] [--rounds 5] [--folder .]

A shard is claimed and then stored, as a driver does it: two transactions. The folder says which disk is measured.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from sqlalchemy import event

from bench.store import leases, row_format, schema, writer
from bench.store.database import open_database
from benchmarks.store import fill

LEVELS = {"NORMAL": 1, "FULL": 2}


def row(example: int) -> dict[str, float | None]:
    """A row of nothing in particular."""
    zeros = dict.fromkeys(row_format.columns(row_format.newest()), 0)
    return {**zeros, "example_idx": example, "margin": 0.5, "rounded": None}


def timed(path: Path, level: str, shards: int, rows: int) -> list[float]:
    """The milliseconds of every shard at this level of `synchronous`."""
    database = open_database(str(path), create=True)
    fill(database, boards=1, examples=0, attacks=1, sources=1)
    event.listen(database, "connect", lambda raw, _: raw.execute(f"PRAGMA synchronous={level}").close())
    database.dispose()  # connections from here on are of this level
    with database.connect() as connection:
        assert connection.execute(sa.text("PRAGMA synchronous")).scalar() == LEVELS[level]
        assert connection.execute(sa.select(schema.cell.c.status)).first() is not None
    key, claims, found = (1, 2, 2), leases.Claims(database), []
    for start in range(0, shards * rows, rows):
        values = [row(example) for example in range(start, start + rows)]
        shard = writer.ShardResult(values, "local", 0.1, {}, [], None, None)
        began = time.perf_counter()
        assert claims.take(key, range(start, start + rows))
        assert writer.record_shard(database, key, shard, shards * rows)
        found.append(1000 * (time.perf_counter() - began))
    database.dispose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path())
    options = parser.parse_args()
    found: dict[str, list[float]] = {level: [] for level in LEVELS}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for turn in range(options.rounds):  # by turns, so that what else the disk does meets both alike
            for level in LEVELS:
                found[level] += timed(Path(folder, f"{level}{turn}.db"), level, options.shards, options.rows)
    medians = {level: statistics.median(each) for level, each in found.items()}
    for level, each in found.items():
        print(
            f"{level:<6} {medians[level]:6.2f} ms per shard of {options.rows} rows (median of {len(each)}), "
            f"95 % below {np.percentile(each, 95):.2f} ms"
        )
    print(f"FULL costs {medians['FULL'] - medians['NORMAL']:+.2f} ms per shard")


if __name__ == "__main__":
    main()
