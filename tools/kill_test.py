"""Kills runs with SIGKILL at random moments, starts them again each time, and compares with a run that was never killed.

python -m tools.kill_test [--kills 20] [--examples 200] [--seed 0] [--drivers 1] [--db postgresql://…/empty]
                           [--run '--executor ray --workers 2']

With --drivers 2 two runs work on one database at once, and one of them is killed each time. --db is an empty database
for the killed runs; without it they have an SQLite file. --run has more options for them. In the end the rows have to
be the same, value for value, every example has to be in one shard, and `bench verify` has to find nothing.
"""

from __future__ import annotations

import argparse
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from bench.store.database import url_of
from tools.compare_rows import snapshot

RESULTS = "SELECT COUNT(*) FROM result"
SHARDS = (
    "SELECT SUM(stop - start), SUM(CASE WHEN attempt > 1 THEN 1 ELSE 0 END), COUNT(*) FROM shard WHERE status = 'done'"
)
BENCH = (sys.executable, "-m", "bench.cli")
COMMAND = (*BENCH, "run", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--preset", "smoke")


def start(folder: Path, db: str, examples: int, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "--db", db, "--examples", str(examples), *more], cwd=folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def shards(db: str) -> tuple[int, int, int]:
    """Of the finished shards: the examples in them, those that were tried more than once, and all."""
    with sa.create_engine(url_of(db)).connect() as connection:
        examples, again, count = connection.execute(sa.text(SHARDS)).one()
        return int(examples), int(again), int(count)


def stored(db: str) -> int:
    """How many results there are by now."""
    try:
        with sa.create_engine(url_of(db)).connect() as connection:
            return int(connection.execute(sa.text(RESULTS)).scalar_one())
    except sa.exc.DBAPIError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drivers", type=int, default=1)
    parser.add_argument("--db")
    parser.add_argument("--run", default="")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calm, killed = str(folder / "calm.db"), options.db or str(folder / "killed.db")
        began = time.monotonic()
        process = start(folder, calm, options.examples)
        while process.poll() is None and stored(calm) <= 2 * options.examples:  # the clean ones come at once
            time.sleep(0.1)
        first = time.monotonic() - began
        if process.wait():
            sys.exit("the undisturbed run failed")
        rest = time.monotonic() - began - first
        print(f"undisturbed: {stored(calm)} rows, attacked ones from {first:.1f} s on for {rest:.1f} s", flush=True)
        more = ("--shard-size", "2", *shlex.split(options.run))
        drivers = [start(folder, killed, options.examples, *more) for _ in range(options.drivers)]
        for kill in range(options.kills):
            # Every other kill before the first attacked row, the others a little after it: all meet unfinished work.
            time.sleep(chance.uniform(0.1, first) if kill % 2 else first + chance.uniform(0, 2 * rest / options.kills))
            victim = chance.randrange(options.drivers)
            drivers[victim].send_signal(signal.SIGKILL)
            drivers[victim].wait()
            print(f"kill {kill + 1}: {stored(killed)} rows stored", flush=True)
            drivers[victim] = start(folder, killed, options.examples, *more)
        if sum(driver.wait() for driver in drivers):
            sys.exit("the last run failed")
        if snapshot(killed)["result"] != snapshot(calm)["result"]:
            sys.exit("the rows differ")
        examples, again, count = shards(killed)
        if examples != stored(killed):
            sys.exit(f"{examples} examples in shards, {stored(killed)} rows")
        judged = subprocess.run([*BENCH, "verify", "--db", killed], cwd=folder, capture_output=True, text=True)
        if judged.returncode:
            sys.exit(judged.stdout + judged.stderr)
        print(f"killed {options.kills} times: the same {stored(killed)} rows, value for value, in {count} shards, {again} "
              f"of them tried more than once; verify: {judged.stdout.strip().splitlines()[-1]}")  # fmt: skip


if __name__ == "__main__":
    main()
