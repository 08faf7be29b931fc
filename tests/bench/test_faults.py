"""What goes wrong in the world, and what the user sees: one line that says what and what to do, and no row lost or doubled.

A Ray cluster that loses workers, or itself, is in test_ray.py; docs/storage.md has the whole list.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from bench.api import BenchError
from bench.cli import main
from bench.models import artifacts
from bench.store import leases
from tests import packages, processes
from tests.processes import bench
from tests.stores import rows

pytestmark = pytest.mark.needs_process

FAULTY = '''
import ctypes, os, signal, time
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
    """Forks ten processes which each fork ten, and never ends, nor lets any other thread of its process run."""
    def run(self, source, batch, report):
        Path("hanging").write_text(str(os.getpid()))
        for _ in range(10):
            if os.fork() == 0:
                for _ in range(10):
                    if os.fork() == 0:
                        break
                time.sleep(10**6)
        ctypes.PyDLL(None).sleep(10**6)

class Hog(Engine):
    """Takes all memory, little by little."""
    def run(self, source, batch, report):
        kept = []
        while True:
            kept.append(np.zeros(2**23))  # what is reserved counts, touched or not: a busy machine is slow to give it

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
    return packages.attacks(tmp_path / "packages", "faulty", FAULTY, "Fine", "Hang", "Hog", "Fragile")


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
    assert not alive(int((tmp_path / "hanging").read_text()))
    assert "the attack's process died (exit code -9); trying that shard once more" in done.stderr


def alive(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def begun(folder: Path, path: str, *arguments: str, change: str = "") -> contextlib.AbstractContextManager[Popen[str]]:
    """Starts `bench …`, with something of the store changed first, so that a test need not wait for minutes."""
    code = f"from bench.store import database, leases\n{change}\nfrom bench.cli import main\nmain()"
    return processes.started([sys.executable, "-c", code, *arguments], folder, {"PYTHONPATH": path})


def wait_for_images(folder: Path, process: Popen[str], already: int = 0) -> None:
    """Until a shard is stored, or is about to be."""
    deadline = time.monotonic() + 200
    while len(list(folder.glob("results/*.images/*/*.npz"))) <= already and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate(timeout=60)
        time.sleep(0.05)


def test_sigterm_keeps_what_is_finished_and_leaves_no_process(faulty: str, tmp_path: Path) -> None:
    with begun(tmp_path, faulty, *run("fine", examples=40), "--shard-size", "1") as process:
        wait_for_images(tmp_path, process)
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


DAY_AHEAD = "true = leases.clock; leases.clock = lambda connection: true(connection) + 86400.0"
JUMPING = """import itertools, time
true, days = leases.clock, itertools.cycle([0, 1, 0, -1])
leases.clock = lambda connection: true(connection) + 86400.0 * next(days)
leases.SECONDS = 1.0  # so that claims are put off again and again
now, time.time = time.time, lambda: now() + 86400.0 * next(days)"""
"""The database's clock and Python's are a day ahead or behind at every other look."""


@pytest.mark.parametrize(
    "change", ["", DAY_AHEAD, JUMPING], ids=["one clock", "a clock that is a day ahead", "a clock that jumps"]
)
def test_two_runs_at_once_in_one_folder(faulty: str, tmp_path: Path, change: str) -> None:
    """With clocks that differ each takes the other's claims for nothing: shards are computed twice, and stored once."""
    command = (*run("fine", examples=24), "--shard-size")
    one, other = begun(tmp_path, faulty, *command, "2"), begun(tmp_path, faulty, *command, "3", change=change)
    with one as first, other as second:
        for process in (first, second):
            output, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
            assert "Best Known" in output
    assert cells(tmp_path)["fine"] == ("done", 24, "")
    assert cells(tmp_path)["clean"] == ("done", 24, "")
    connection = sqlite3.connect(tmp_path / "results" / "bench.db")
    assert connection.execute("SELECT COUNT(*) FROM shard WHERE status <> 'done'").fetchone() == (0,)
    assert connection.execute("SELECT SUM(stop - start) FROM shard").fetchone() == (48,)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """The folder `results` as a disk of its own; call it with a size to make it larger."""
    disk = tmp_path / "results"
    disk.mkdir()
    if processes.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk]).returncode:
        pytest.skip("a small disk cannot be mounted here")

    def resize(size: str) -> None:
        processes.run(["mount", "-o", f"remount,size={size}", disk], check=True)

    yield resize
    processes.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_ends_the_run_in_one_line_and_the_same_command_goes_on(
    small_disk: Callable[[str], None], tmp_path: Path
) -> None:
    command = (*run("pgd", examples=60), "--shard-size", "5")
    full = bench(*command, cwd=tmp_path)
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    last = full.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "no room" in last
    assert "free some space" in last
    before = cells(tmp_path).get("pgd", ("", 0, ""))
    assert before[1] < 60
    small_disk("50m")
    again = bench(*command, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert bench("verify", cwd=tmp_path).stdout.endswith("120 rows judged again, 0 problems\n")
    (tmp_path / "undisturbed").mkdir()
    assert bench(*command, cwd=tmp_path / "undisturbed").returncode == 0
    found = rows(str(tmp_path / "results" / "bench.db"))
    assert len(found) == 120
    assert found == rows(str(tmp_path / "undisturbed" / "results" / "bench.db"))


class Lock:
    """Another process that holds the SQLite file."""

    said = "database is locked"
    advice = "another process holds it: wait for it to end, then run the same command again"

    def __init__(self, path: Path) -> None:
        self.url, self._path = str(path), path
        self._other: sqlite3.Connection | None = None

    def begin(self) -> None:
        self._other = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        self._other.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        if self._other is not None:
            self._other.close()  # which rolls back
            self._other = None


class Outage:
    """A PostgreSQL server that is stopped."""

    said = "trying for another"  # what the server says last depends on the moment
    advice = "check that it is up, then run again"

    def __init__(self, server: Any) -> None:
        self.url, self._server, self._up = server.database(), server, True

    def begin(self) -> None:
        self._server.stop()
        self._up = False

    def end(self) -> None:
        if not self._up:
            self._server.start()
            self._up = True


@pytest.fixture(params=["locked", "gone"])
def trouble(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lock | Outage]:
    path = tmp_path / "results" / "bench.db"
    made = Lock(path) if request.param == "locked" else Outage(request.getfixturevalue("postgres"))
    yield made
    made.end()


def test_a_database_that_is_locked_or_gone_is_waited_for(trouble: Lock | Outage, faulty: str, tmp_path: Path) -> None:
    """For so long that the run gives up; and, of the same command, for a while."""
    command = (*run("fine", examples=20), "--shard-size", "1", "--db", trouble.url)
    with begun(
        tmp_path, faulty, *command, change="database.BUSY_SECONDS, database.PATIENCE_SECONDS = 0.2, 0.0"
    ) as process:
        wait_for_images(tmp_path, process)
        trouble.begin()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("error: database ")
    assert trouble.advice in errors.splitlines()[-1]
    trouble.end()
    stored = len(list(tmp_path.glob("results/*.images/*/*.npz")))
    with begun(tmp_path, faulty, *command, change="database.BUSY_SECONDS = 0.2") as process:
        wait_for_images(tmp_path, process, stored)
        trouble.begin()
        time.sleep(2.5)
        trouble.end()
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "the database does not take this (" in errors
    assert trouble.said in errors
    every = [("linf", *names, i) for names in (("clean", "clean"), ("fine", "self")) for i in range(20)]
    assert [row[:4] for row in rows(trouble.url)] == every


HERE = '''
import numpy as np
from bench.api import Attacked
from bench.executors.base import ExecutorPlugin, Outcome

class Here(ExecutorPlugin):
    """In this process, and at once: the attack is not what is tried."""
    def start(self, name, limits, say):
        return self
    name, shares_files = "here", True
    def close(self):
        pass
    def run(self, take, progress):
        while (task := take()) is not None:
            images = task.batch.images
            noise = np.random.default_rng(task.batch.seeds[0].view(np.uint32)).uniform(-0.03, 0.03, images.shape)
            zeros = np.zeros(len(images), np.int64)
            images = np.clip(images + noise, 0, 1).astype(np.float32)
            yield Outcome(task.index, Attacked(images, zeros == 1, zeros + 0.5, zeros, zeros, zeros, zeros), 0.1, None)
'''


def test_a_disk_that_is_full_at_any_write(
    small_disk: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk grows by a few pages, and each time the run fails a little later: in tables, rows, images and pages."""
    packages.write(tmp_path / "packages", "here", "executors", "here", "here_module", HERE, "Here")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setattr(leases, "SECONDS", 2.0)  # claims of a run that failed end with its process, which here goes on
    command = (*run("pgd@self", examples=12), "--shard-size", "3", "--executor", "here")
    kilobytes, failed = 200, list[str]()
    while (found := here(tmp_path, command, small_disk, kilobytes)).exit_code:
        failed.append(found.stderr.splitlines()[-1])
        assert found.exit_code == 1, failed
        assert failed[-1].startswith("error: "), failed
        assert "no room" in failed[-1], failed
        assert "free some space" in failed[-1], failed
        kilobytes += max(80, kilobytes // 6)
    for place in ("database results/bench.db", "results/bench.images/", "results/leaderboard/"):
        assert any(place in line for line in failed), failed
    (tmp_path / "undisturbed").mkdir()
    assert here(tmp_path / "undisturbed", command, small_disk, kilobytes).exit_code == 0
    stored = rows(str(tmp_path / "results" / "bench.db"))
    assert len(stored) == 24
    assert stored == rows(str(tmp_path / "undisturbed" / "results" / "bench.db"))
    verified = bench("verify", cwd=tmp_path, PYTHONPATH=str(tmp_path / "packages")).stdout
    assert verified.endswith("24 rows judged again, 0 problems\n")


def here(folder: Path, command: Sequence[str], small_disk: Callable[[str], None], kilobytes: int) -> Result:
    """Runs `bench …` in this process, which has TensorFlow already, with a disk of so many kilobytes."""
    small_disk(f"{kilobytes}k")
    with contextlib.chdir(folder):
        return CliRunner().invoke(main, command)


def test_a_model_for_which_there_is_no_room_is_named_and_leaves_nothing_behind(
    small_disk: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "results" / "home"))
    small_disk("200k")
    with pytest.raises(
        BenchError, match=r"no room to write .*weights\.npz: free some space there, or point BENCH_HOME"
    ):
        artifacts.save("a" * 64, {}, {"weight:x": np.random.default_rng(1).uniform(size=10**5)}, {})
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
