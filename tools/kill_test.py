"""Kills a run with SIGKILL at random moments, starts it again each time, and compares with a run that was never killed.

python tools/kill_test.py [--kills 20] [--examples 200] [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

QUERY = """SELECT board.norm, attack.name, source.name, result.example_idx, correct, pred, label, margin, distance,
    source_success, source_margin, restart, target, part, result.gradients, result.queries FROM result
    JOIN board ON board.id = result.board_id JOIN attack ON attack.id = result.attack_id
    JOIN source ON source.id = result.source_id ORDER BY 1, 2, 3, 4"""


def start(folder: Path, examples: int, *more: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "bench.cli",
        "run",
        "--defence",
        "block-shuffle",
        "--attack",
        "pgd",
        "--preset",
        "smoke",
    ]
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [*command, "--examples", str(examples), *more], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def rows(folder: Path) -> list[tuple[object, ...]]:
    return sqlite3.connect(folder / "results" / "bench.db").execute(QUERY).fetchall()


def stored(folder: Path) -> int:
    try:
        return len(rows(folder))
    except sqlite3.OperationalError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        calm, killed = Path(name, "calm"), Path(name, "killed")
        began = time.monotonic()
        process = start(calm, options.examples)
        while process.poll() is None and stored(calm) <= 2 * options.examples:  # the clean ones come at once
            time.sleep(0.1)
        first = time.monotonic() - began
        if process.wait():
            sys.exit("the undisturbed run failed")
        rest = time.monotonic() - began - first
        print(f"undisturbed: {len(rows(calm))} rows, attacked ones from {first:.1f} s on for {rest:.1f} s", flush=True)
        for kill in range(options.kills):
            process = start(killed, options.examples, "--shard-size", "2")
            # Every other kill before the first attacked row, the others a little after it: all meet unfinished work.
            time.sleep(chance.uniform(0.1, first) if kill % 2 else first + chance.uniform(0, 2 * rest / options.kills))
            process.send_signal(signal.SIGKILL)
            process.wait()
            print(f"kill {kill + 1}: {stored(killed)} rows stored", flush=True)
        if start(killed, options.examples, "--shard-size", "2").wait():
            sys.exit("the last run failed")
        if rows(killed) != rows(calm):
            sys.exit("the rows differ")
        print(f"killed {options.kills} times: the same {len(rows(killed))} rows, value for value")


if __name__ == "__main__":
    main()
