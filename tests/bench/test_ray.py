"""Runs on a real Ray cluster of two nodes, started here, with a real PostgreSQL server: the rows of a local run."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen
from typing import Any, ClassVar

import pytest

from bench.models import artifacts
from tests.packages import attacks
from tests.processes import bench, bench_command, started
from tests.stores import rows

pytest.importorskip("ray", reason="Ray is not installed (pip install '.[ray]')")
pytestmark = [pytest.mark.slow, pytest.mark.needs_process]

SPY = '''
import os
from pathlib import Path
import numpy as np
from bench.api import Attacked, Engine

class Spy(Engine):
    """Writes down what its process can see."""
    def run(self, source, batch, report):
        with open("seen.txt", "ab") as file:
            file.write(repr(dict(os.environ)).encode() + Path("/proc/self/environ").read_bytes())
            file.write(Path("/proc/self/cmdline").read_bytes() + repr(vars(batch)).encode())
        zeros = np.zeros(len(batch.labels), np.int64)
        return Attacked(batch.images, zeros == 1, zeros.astype(np.float32), zeros, zeros, zeros, zeros)
'''
SECRET = secrets.randbits(62)
EXAMPLES = 12


class Nodes:
    """Two raylets on this machine, each with a CPU of its own, and a head for them."""

    def __init__(self, environment: dict[str, str]) -> None:
        from ray.cluster_utils import Cluster

        kept = dict(os.environ)
        os.environ.update(environment)  # what the nodes are started with, and so their workers
        try:
            self.cluster = Cluster(initialize_head=True, head_node_args={**self._room, "num_cpus": 1})
            self.cluster.add_node(**self._room, num_cpus=1)
        finally:
            os.environ.clear()
            os.environ.update(kept)

    _room: ClassVar[dict[str, Any]] = {"object_store_memory": 100 * 2**20, "include_dashboard": False}

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def workers(self) -> list[int]:
        """The processes that attack."""
        nodes = {
            info[0].process.pid for node in self.cluster.list_all_nodes() if (info := node.all_processes.get("raylet"))
        }
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "cmdline").read_bytes().startswith(b"ray::WorkerActor"):
                    parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                    found += [int(folder.name)] if parent in nodes else []
            except (OSError, IndexError):
                continue
        return found

    def close(self) -> None:
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a package of an attack that looks around, for PYTHONPATH."""
    return attacks(tmp_path_factory.mktemp("packages"), "spy", SPY, "Spy")


@pytest.fixture
def nodes(packages: str) -> Iterator[Callable[[], Nodes]]:
    """Starts clusters, and ends them."""
    started: list[Nodes] = []

    def start() -> Nodes:
        # On a machine that does other things too, the niceness that Ray gives its workers would starve them.
        settings = {"PYTHONPATH": packages, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        started.append(Nodes(settings))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def undisturbed(packages: str, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    """The rows of a local run that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = bench(*command(), cwd=folder, BENCH_HOME=str(folder / "home"), **environment(packages))
    assert done.returncode == 0, done.stderr
    return rows(str(folder / "results" / "bench.db"))


def command() -> list[str]:
    shipped = [a for a in artifacts.all_artifacts() if a.spec["defence"]["name"] == "block-shuffle"]
    weights = next(a.weights for a in shipped if "what" not in a.spec)
    return ["run", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--attack", "spy@nominal", "--preset", "smoke",
            "--examples", str(EXAMPLES), "--weights", str(weights)]  # fmt: skip


def environment(packages: str) -> dict[str, Any]:
    return {"PYTHONPATH": packages, "BENCH_KEY": f"mine:{SECRET}"}


def begun(tmp_path: Path, packages: str, *more: str) -> AbstractContextManager[Popen[str]]:
    return started(bench_command(*command(), *more), tmp_path, environment(packages))


def wait_for(something: Callable[[], Any], process: Popen[str], seconds: float = 300) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if found := something():
            return found
        time.sleep(0.1)
    raise AssertionError(
        f"it never came to that: {process.communicate(timeout=60) if process.poll() is not None else ''}"
    )


def shards_done(url: str) -> int:
    import sqlalchemy as sa

    from bench.store.database import url_of

    database = sa.create_engine(url_of(url))
    try:
        with database.connect() as connection:
            query = "SELECT COUNT(*) FROM shard WHERE status = 'done' AND worker = 'ray'"
            return int(connection.execute(sa.text(query)).scalar_one())
    except sa.exc.DBAPIError:
        return 0
    finally:
        database.dispose()


def test_a_worker_killed_in_the_middle_changes_no_row(
    nodes: Any, postgres: Any, packages: str, undisturbed: Any, tmp_path: Path
) -> None:
    cluster, url = nodes(), postgres.database()
    options = ("--executor", "ray", "--ray-address", cluster.address, "--workers", "2", "--shard-size", "2")
    with begun(tmp_path, packages, "--db", url, *options) as process:
        wait_for(lambda: shards_done(url) >= 3, process)
        victims = wait_for(cluster.workers, process)
        os.kill(victims[0], signal.SIGKILL)
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "trying that shard once more" in errors
    assert "Best Known" in output
    assert len(undisturbed) == 2 * 3 * EXAMPLES
    assert rows(url) == undisturbed
    checked = bench("verify", "--db", url, cwd=tmp_path, **environment(packages))
    assert f"{2 * 3 * EXAMPLES} rows judged again, 0 problems" in checked.stdout
    nowhere_but_in_the_driver(tmp_path, output + errors)


def nowhere_but_in_the_driver(tmp_path: Path, said: str) -> None:
    """The key is in nothing that a worker saw, nor in any file of the run, nor in Ray's logs."""
    forms = [str(SECRET).encode(), f"{SECRET:x}".encode(), SECRET.to_bytes(8, "little"), SECRET.to_bytes(8, "big")]
    assert not any(form in said.encode() for form in forms)
    assert (tmp_path / "seen.txt").stat().st_size > 0
    logs = Path("/tmp/ray/session_latest").resolve()
    for path in [*tmp_path.rglob("*"), *logs.rglob("*.log"), *logs.rglob("*.err"), *logs.rglob("*.out")]:
        if path.is_file():
            content = path.read_bytes()
            assert not any(form in content for form in forms), path


def test_a_lost_cluster_costs_what_was_in_hand(nodes: Any, packages: str, undisturbed: Any, tmp_path: Path) -> None:
    """Everything of Ray is gone and started anew: the run ends with a line, and the same command goes on."""
    cluster, db = nodes(), str(tmp_path / "ray.db")
    options = ("--db", db, "--executor", "ray", "--workers", "2", "--shard-size", "2")
    with begun(tmp_path, packages, *options, "--ray-address", cluster.address) as process:
        wait_for(lambda: shards_done(db) >= 3, process)
        cluster.close()
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "error: the Ray cluster is gone: start it, then run the same command again" in errors
    before = shards_done(db)
    assert 3 <= before < 2 * 2 * EXAMPLES // 2
    again = bench(*command(), *options, "--ray-address", nodes().address, cwd=tmp_path, **environment(packages))
    assert again.returncode == 0, again.stderr
    assert rows(db) == undisturbed


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = bench("run", "--defence", "none", "--attack", "pgd", "--preset", "smoke", "--executor", "ray", "--ray-address",
                 "127.0.0.1:1", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 2
    assert "--ray-address 127.0.0.1:1: no Ray cluster answers there" in done.stderr
    assert not (tmp_path / "results").exists()


HOSTILE = '''
import ctypes, gc, os, pickle, socket, time
from pathlib import Path
import numpy as np
from bench.api import Attacked, Engine

class Touching:
    """Runs something where it is unpickled."""
    def __reduce__(self):
        return (os.system, ("touch unpickled",))

def answer(batch, **changed):
    zeros = np.zeros(len(batch.labels), np.int64)
    return Attacked(batch.images, zeros == 1, zeros.astype(np.float32), zeros, zeros, zeros, zeros, **changed)

class Quiet(Engine):
    """Does nothing."""
    def run(self, source, batch, report):
        return answer(batch)

class Touch(Engine):
    """Returns what runs code where it is unpickled."""
    def run(self, source, batch, report):
        return answer(batch, flags={"weak": Touching()})

class Forge(Engine):
    """Writes such a thing to every connection that its process has."""
    def run(self, source, batch, report):
        for one in [found for found in gc.get_objects() if type(found) is socket.socket]:
            os.write(one.fileno(), pickle.dumps(Touching()))
        time.sleep(10**6)

class Raise(Engine):
    """Raises it."""
    def run(self, source, batch, report):
        error = RuntimeError("no luck")
        error.more = Touching()
        raise error

class Hold(Engine):
    """Forks, and then lets no thread of its process run."""
    def run(self, source, batch, report):
        Path("holding").write_text(str(os.getpid()))
        if os.fork() == 0:
            time.sleep(10**6)
        ctypes.PyDLL(None).sleep(10**6)
'''


def test_hostile_attacks_fail_alone_and_nothing_of_theirs_is_unpickled(tmp_path: Path) -> None:
    """On a cluster of its own, on this machine."""
    names = ("Touch", "Forge", "Raise", "Hold", "Quiet")
    path = attacks(tmp_path / "packages", "hostile", HOSTILE, *names)
    chosen = [word for name in names for word in ("--attack", f"{name.lower()}@self")]
    done = bench("run", "--defence", "none", *chosen, "--preset", "smoke", "--examples", "3", "--norm", "linf",
                 "--executor", "ray", "--time-limit", "5", cwd=tmp_path, PYTHONPATH=path)  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "done: none linf quiet@self" in done.stderr
    for name, said in {
        "touch": "the attack returned an object of type Touching as the count of flag weak",
        "forge": "the attack's process sent something other than a message, and was ended",
        "raise": "RuntimeError: no luck",
        "hold": "the attack took longer than the 5 s of --time-limit",
    }.items():
        assert f"failed: none linf {name}@self: {said}" in done.stderr
    assert not (tmp_path / "unpickled").exists()
    with pytest.raises(ProcessLookupError):  # the process, and what it has forked
        os.killpg(int((tmp_path / "holding").read_text()), 0)
