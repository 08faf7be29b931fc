"""Executors by name, several workers, models trained once, and models that travel between machines."""

from __future__ import annotations

import html
import multiprocessing
import shlex
import sqlite3
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from bench.api import BenchError, UsageError
from bench.commands.options import executor_options
from bench.models import artifacts
from bench.support import locks
from tests import tiny
from tests.honest import RUN
from tests.processes import bench
from tests.stores import rows


@pytest.mark.needs_process
def test_two_workers_give_the_rows_of_one(honest: Path, tmp_path: Path) -> None:
    done = bench(*RUN, "--workers", "2", "--shard-size", "2", cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    assert rows(str(tmp_path / "results" / "bench.db")) == rows(str(honest / "results" / "bench.db"))


@pytest.mark.needs_process
def test_a_source_is_trained_once_not_once_a_worker(tmp_path: Path) -> None:
    options = tiny.make(tmp_path)
    done = bench("run", "--defence", "block-shuffle", "--attack", "pgd@nominal", *options,
                 "--workers", "2", "--shard-size", "2", cwd=tmp_path, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("training the classifier of none (kept") == 1


NOTEBOOK = '''
import dataclasses
from bench.executors.base import ExecutorPlugin
from bench.executors.local import LocalPool
from bench.executors.pool import PoolExecutor

@dataclasses.dataclass(frozen=True)
class NotebookSettings:
    """Where the notes are."""
    file: str = "notes.txt"

class Notebook(ExecutorPlugin):
    """Local workers, and a note of every task."""
    Settings = NotebookSettings

    def start(self, name, limits, say):
        return NotingExecutor(PoolExecutor(name, LocalPool(limits), limits, say), self.settings.file)

class NotingExecutor:
    def __init__(self, executor, file):
        self._executor, self._file = executor, file
        self.name, self.shares_files, self.close = executor.name, executor.shares_files, executor.close

    def run(self, take, progress):
        def taken():
            task = take()
            if task is not None:
                with open(self._file, "a") as file:
                    file.write(f"{task.engine} on {len(task.batch.labels)}\\n")
            return task
        return self._executor.run(taken, progress)

class NoExecutor:
    """Is none."""
'''


@pytest.fixture
def notebook(tmp_path: Path) -> str:
    """A folder with a package of an executor, for PYTHONPATH."""
    folder = tmp_path / "packages"
    info = folder / "notebook_pack-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "notebook_module.py").write_text(NOTEBOOK)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: notebook-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[bench.executors]\nnotebook = notebook_module:Notebook\nnone = notebook_module:NoExecutor\n"
    )
    return str(folder)


@pytest.mark.needs_process
def test_an_executor_of_another_package_is_chosen_by_name_and_stored_and_shown(
    honest: Path, notebook: str, tmp_path: Path
) -> None:
    listed = bench("list", "executors", cwd=tmp_path, PYTHONPATH=notebook).stdout
    assert "notebook  Local workers, and a note of every task." in listed
    chosen = ("--executor", "notebook[file=mine.txt]")
    done = bench(*RUN, *chosen, cwd=tmp_path, PYTHONPATH=notebook)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine.txt").read_text() == "pgd on 3\n" * 2
    db = str(tmp_path / "results" / "bench.db")
    assert rows(db) == rows(str(honest / "results" / "bench.db"))
    with sqlite3.connect(db) as connection:
        workers = connection.execute("SELECT DISTINCT worker FROM shard ORDER BY worker").fetchall()
    assert workers == [("driver",), ("notebook",)]
    pages = [path.read_text() for path in (tmp_path / "results" / "leaderboard").rglob("*.html")]
    assert any(html.escape(shlex.join(chosen), quote=False) in html.unescape(page) for page in pages)


@click.command()
@executor_options
def start_one(executor: Any) -> None:
    """Starts an executor as `bench run` does."""
    with executor.started(click.echo):
        pass


KNOWN = "there are local, none, notebook, ray"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["loca"], f"--executor: unknown executor 'loca': did you mean 'local'?; {KNOWN}"),
        (["none"], "'none' of package notebook-pack is no subclass of bench.executors.base.ExecutorPlugin"),
        (["notebook[flie=x]"], "notebook has no setting 'flie': did you mean 'file'?; it has file"),
        (["notebook", "--ray-address", "auto"], "--ray-address and --gpus-per-worker belong to --executor ray"),
        (["ray[gpus_per_worker=-1]"], "ray: gpus_per_worker is -1; it must be 0 or more"),
        (["local", "--memory-limit", "much"], "'much' is no amount of memory"),
    ],
)
def test_executors_that_cannot_be_had_are_named(
    notebook: str, options: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(notebook)
    with pytest.raises(BenchError) as caught:
        start_one(["--executor", *options], standalone_mode=False)
    assert said in str(caught.value)


def hold(path: Path, order: Any, name: str, held: Any) -> None:
    with locks.alone(path, lambda: order.put(f"{name} waits")):
        order.put(f"{name} in")
        held.set()
        time.sleep(1.0)
        order.put(f"{name} out")


@pytest.mark.needs_process
def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    order, held, unused = context.SimpleQueue(), context.Event(), context.Event()  # what is put there is there
    first = context.Process(target=hold, args=(tmp_path / "a.lock", order, "first", held))
    second = context.Process(target=hold, args=(tmp_path / "a.lock", order, "second", unused))
    first.start()
    assert held.wait(60)
    second.start()
    first.join(60)
    second.join(60)
    seen = []
    while not order.empty():
        seen.append(order.get())
    assert [word for word in seen if "waits" not in word] == ["first in", "first out", "second in", "second out"]


def test_models_travel_by_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("BENCH_ARTIFACTS", f"file://{tmp_path}/bucket")
    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "one"))
    made = artifacts.save("a" * 64, {"what": "a test"}, {"weight:x": np.ones(3, np.float32)}, {"clean_accuracy": 0.5})
    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "other"))
    assert artifacts.find("b" * 64) is None
    found = artifacts.find("a" * 64)
    assert found is not None
    assert found.path == tmp_path / "other" / "artifacts" / ("a" * 16)
    assert (found.spec, found.weights_sha256) == (made.spec, made.weights_sha256)
    gone = Path("/machine/of/the/driver/artifacts") / ("a" * 16) / "weights.npz"
    assert artifacts.local_weights(gone) == found.weights
    assert artifacts.local_weights(made.weights) == made.weights


def test_a_place_for_models_that_makes_no_sense_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("BENCH_ARTIFACTS", "nowhere://bucket")
    with pytest.raises(UsageError, match="BENCH_ARTIFACTS is 'nowhere://bucket'"):
        artifacts.find("c" * 64)
    (tmp_path / "file").touch()
    monkeypatch.setenv("BENCH_ARTIFACTS", f"file://{tmp_path}/file/below")
    with pytest.raises(BenchError, match="cannot copy artifact"):
        artifacts.save("d" * 64, {}, {"x": np.ones(1)}, {})
