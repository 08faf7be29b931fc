"""What goes wrong in the world, and what the user sees: one line that says what and what to do, and no row lost or doubled.

A database that is locked, or gone and back, is in test_store.py; a clock that jumps in test_leases.py; a Ray cluster
that loses workers, or itself, in test_ray.py.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import bench

FAULTY = '''
import os, signal, time
from pathlib import Path
import numpy as np
from bench.api import Attacked, Engine

def untouched(batch):
    zeros = np.zeros(len(batch.labels), np.int64)
    return Attacked(batch.images, zeros == 1, zeros.astype(np.float32), zeros, zeros, zeros, zeros)

class Fine(Engine):
    """Does nothing."""
    def run(self, source, batch, report):
        time.sleep(0.3)
        return untouched(batch)

class Hang(Engine):
    """Never ends."""
    def run(self, source, batch, report):
        time.sleep(10**6)

class Hog(Engine):
    """Takes all memory."""
    def run(self, source, batch, report):
        kept = []
        while True:
            kept.append(np.ones(2**29))

class Fragile(Engine):
    """Its process is killed, once."""
    def run(self, source, batch, report):
        if not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return untouched(batch)
'''


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    """A folder with a package of attacks that have accidents, for PYTHONPATH."""
    folder = tmp_path / "packages"
    info = folder / "faulty_pack-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "faulty_module.py").write_text(FAULTY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-pack\nVersion: 1.0\n")
    names = ("Fine", "Hang", "Hog", "Fragile")
    (info / "entry_points.txt").write_text(
        "[bench.attacks]\n" + "".join(f"{name.lower()} = faulty_module:{name}\n" for name in names)
    )
    return str(folder)


def run(*attacks: str, examples: int = 4) -> list[str]:
    chosen = [argument for attack in attacks for argument in ("--attack", attack)]
    return ["run", "--defence", "none", *chosen, "--preset", "smoke", "--examples", str(examples), "--norm", "linf"]


def cells(folder: Path) -> dict[str, tuple[str, int, str]]:
    query = """SELECT attack.name, status, (SELECT COUNT(*) FROM result WHERE result.attack_id = cell.attack_id), error
        FROM cell JOIN attack ON attack.id = cell.attack_id"""
    found = sqlite3.connect(folder / "results" / "bench.db").execute(query)
    return {name: (status, rows, error or "") for name, status, rows, error in found}


def test_attacks_that_hang_take_all_memory_or_are_killed(faulty: str, tmp_path: Path) -> None:
    done = bench(*run("hang", "hog", "fragile", "fine"), "--time-limit", "10", "--memory-limit", "3GB", cwd=tmp_path,
                 PYTHONPATH=faulty)  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    found = cells(tmp_path)
    assert found["fine"] == ("done", 4, "")
    assert found["fragile"] == ("done", 4, "")
    assert found["hang"] == ("failed", 0, "the attack took longer than the 10 s of --time-limit")
    assert found["hog"][:2] == ("failed", 0)
    assert "ran out of memory" in found["hog"][2]
    assert "the attack's process died (exit code -9); trying that shard once more" in done.stderr


def alive(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_sigterm_keeps_what_is_finished_and_leaves_no_process(faulty: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.cli", *run("fine", examples=40), "--shard-size", "1"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": faulty},
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("results/bench.images/*/*.npz")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors
    connection = sqlite3.connect(tmp_path / "results" / "bench.db")
    assert connection.execute("SELECT COUNT(*) FROM shard WHERE status = 'claimed'").fetchone() == (0,)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and alive(process.pid):
        time.sleep(0.2)
    assert not alive(process.pid)


def test_two_runs_at_once_in_one_folder(faulty: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.cli", *run("fine", examples=24), "--shard-size"]
    runs = [
        subprocess.Popen([*command, size], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "PYTHONPATH": faulty})
        for size in ("2", "3")
    ]  # fmt: skip
    for process in runs:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert "Best Known" in output
    assert cells(tmp_path)["fine"] == ("done", 24, "")
    assert cells(tmp_path)["clean"] == ("done", 24, "")
    connection = sqlite3.connect(tmp_path / "results" / "bench.db")
    assert connection.execute("SELECT COUNT(*) FROM shard WHERE status <> 'done'").fetchone() == (0,)
    assert connection.execute("SELECT SUM(stop - start) FROM shard").fetchone() == (48,)


def test_a_full_disk_ends_the_run_in_one_line_and_the_same_command_goes_on(faulty: str, tmp_path: Path) -> None:
    disk = tmp_path / "results"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        command = (*run("fine", examples=60), "--shard-size", "10")
        full = bench(*command, cwd=tmp_path, PYTHONPATH=faulty)
        assert full.returncode == 1
        assert "Traceback" not in full.stderr
        last = full.stderr.splitlines()[-1]
        assert "no room" in last
        assert "free some space" in last
        before = cells(tmp_path).get("fine", ("", 0, ""))
        assert before[1] < 60
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        assert bench(*command, cwd=tmp_path, PYTHONPATH=faulty).returncode == 0
        assert cells(tmp_path)["fine"] == ("done", 60, "")
        assert bench("verify", cwd=tmp_path, PYTHONPATH=faulty).stdout.endswith("120 rows judged again, 0 problems\n")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
