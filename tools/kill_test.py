"""Kills runs with SIGKILL at random moments, starts them again each time, and compares with a run that was never killed.

python -m tools.kill_test [--kills 20] [--examples 200] [--seed 0] [--drivers 1] [--db postgresql://…/empty]
                           [--scope survivors] [--attack pgd --attack mt] [--shard-size 10 --shard-size 50]
                           [--batch-size 7 --batch-size 64] [--run '--executor ray --workers 2']

Of several sizes each start takes the next. With --scope survivors the rows are also compared with those of a run on
everything: every one must be there, value for value, and Best Known the same. With --drivers 2 two runs work on one
database at once, and one of them is killed each time. --db is an empty database for the killed runs; without it they
have an SQLite file. --run has more options for them. In the end the rows have to be the same, value for value, every
example has to be in one shard, and `bench verify` has to find nothing.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from bench.store import queries, schema
from bench.store import shards as shard_rows
from bench.store.database import url_of
from tools.compare_rows import snapshot

RESULTS = "SELECT COUNT(*) FROM result"
SHARDS = sa.select(schema.shard).where(schema.shard.c.status == "done")
BENCH = (sys.executable, "-m", "bench.cli")
COMMAND = (*BENCH, "run", "--defence", "block-shuffle", "--preset", "smoke")


def start(folder: Path, db: str, examples: int, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "--db", db, "--examples", str(examples), *more], cwd=folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def shards(db: str) -> tuple[int, int, int]:
    """Of the finished shards: the examples in them, those that were tried more than once, and all."""
    with sa.create_engine(url_of(db)).connect() as connection:
        found = connection.execute(SHARDS).mappings().all()
    examples = sum(len(shard_rows.examples_of(shard)) for shard in found)
    return examples, sum(shard["attempt"] > 1 for shard in found), len(found)


def best_known(db: str) -> dict[str, int | None]:
    """By norm."""
    database = sa.create_engine(url_of(db))
    return {board.norm: board.best_known for board in queries.boards(database)}


def stored(db: str) -> int:
    """How many results there are by now."""
    try:
        with sa.create_engine(url_of(db)).connect() as connection:
            return int(connection.execute(sa.text(RESULTS)).scalar_one())
    except sa.exc.DBAPIError:
        return 0


def compare_with_all(folder: Path, survivors: str, examples: int, attacks: Sequence[str]) -> None:
    """Runs everything on every example, and ends with what differs from the rows of a run on survivors."""
    everything = str(folder / "everything.db")
    if start(folder, everything, examples, *attacks, "--scope", "all").wait():
        sys.exit("the run on everything failed")
    some, full = snapshot(survivors)["result"], snapshot(everything)["result"]
    if any(full.get(key) != row for key, row in some.items()):
        sys.exit("a row of the run on survivors is not one of the run on everything")
    if best_known(survivors) != best_known(everything):
        sys.exit(f"Best Known is {best_known(survivors)} on survivors and {best_known(everything)} on everything")
    print(f"scope all: {len(full)} rows, those of survivors among them; Best Known {best_known(everything)} in both")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drivers", type=int, default=1)
    parser.add_argument("--db")
    parser.add_argument("--run", default="")
    parser.add_argument("--scope", choices=("all", "survivors"), default="all")
    parser.add_argument("--attack", action="append")
    parser.add_argument("--shard-size", action="append")
    parser.add_argument("--batch-size", action="append")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calm, killed = str(folder / "calm.db"), options.db or str(folder / "killed.db")
        began = time.monotonic()
        attacks = [word for attack in options.attack or ["pgd@nominal"] for word in ("--attack", attack)]
        process = start(folder, calm, options.examples, *attacks, "--scope", options.scope)
        while process.poll() is None and stored(calm) <= 2 * options.examples:  # the clean ones come at once
            time.sleep(0.1)
        first = time.monotonic() - began
        if process.wait():
            sys.exit("the undisturbed run failed")
        rest = time.monotonic() - began - first
        print(f"undisturbed: {stored(calm)} rows, attacked ones from {first:.1f} s on for {rest:.1f} s", flush=True)
        sizes = (itertools.cycle(options.shard_size or ["2"]), itertools.cycle(options.batch_size or ["64"]))

        def started() -> subprocess.Popen[bytes]:
            size = ("--shard-size", next(sizes[0]), "--batch-size", next(sizes[1]))
            more = (*attacks, "--scope", options.scope, *size, *shlex.split(options.run))
            return start(folder, killed, options.examples, *more)

        drivers = [started() for _ in range(options.drivers)]
        for kill in range(options.kills):
            # Every other kill before the first attacked row, the others a little after it: all meet unfinished work.
            time.sleep(chance.uniform(0.1, first) if kill % 2 else first + chance.uniform(0, 2 * rest / options.kills))
            victim = chance.randrange(options.drivers)
            drivers[victim].send_signal(signal.SIGKILL)
            drivers[victim].wait()
            print(f"kill {kill + 1}: {stored(killed)} rows stored", flush=True)
            drivers[victim] = started()
        if sum(driver.wait() for driver in drivers):
            sys.exit("the last run failed")
        if snapshot(killed)["result"] != snapshot(calm)["result"]:
            sys.exit("the rows differ")
        examples, again, count = shards(killed)
        if examples != stored(killed):
            sys.exit(f"{examples} examples in shards, {stored(killed)} rows")
        if options.scope == "survivors":
            compare_with_all(folder, killed, options.examples, attacks)
        judged = subprocess.run([*BENCH, "verify", "--db", killed], cwd=folder, capture_output=True, text=True)
        if judged.returncode:
            sys.exit(judged.stdout + judged.stderr)
        print(f"killed {options.kills} times: the same {stored(killed)} rows, value for value, in {count} shards, {again} "
              f"of them tried more than once; verify: {judged.stdout.strip().splitlines()[-1]}")  # fmt: skip


if __name__ == "__main__":
    main()
