"""Several workers, models trained once, and models that travel between machines."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import BenchError, UsageError
from bench.models import artifacts
from bench.support import locks
from tests import tiny
from tests.conftest import bench
from tests.honest import RUN
from tests.stores import rows


def test_two_workers_give_the_rows_of_one(honest: Path, tmp_path: Path) -> None:
    done = bench(*RUN, "--workers", "2", "--shard-size", "2", cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    assert rows(str(tmp_path / "results" / "bench.db")) == rows(str(honest / "results" / "bench.db"))


def test_a_source_is_trained_once_not_once_a_worker(tmp_path: Path) -> None:
    options = tiny.make(tmp_path)
    done = bench("run", "--defence", "block-shuffle", "--attack", "pgd@nominal", *options,
                 "--workers", "2", "--shard-size", "2", cwd=tmp_path, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("training the classifier of none (kept") == 1


def hold(path: Path, order: Any, name: str, held: Any) -> None:
    with locks.alone(path, lambda: order.put(f"{name} waits")):
        order.put(f"{name} in")
        held.set()
        time.sleep(1.0)
        order.put(f"{name} out")


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    order, held, unused = context.Queue(), context.Event(), context.Event()
    first = context.Process(target=hold, args=(tmp_path / "a.lock", order, "first", held))
    second = context.Process(target=hold, args=(tmp_path / "a.lock", order, "second", unused))
    first.start()
    assert held.wait(60)
    second.start()
    first.join(60)
    second.join(60)
    seen = []
    while not order.empty():
        seen.append(order.get(timeout=60))
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
    assert (found.spec, found.weights_digest) == (made.spec, made.weights_digest)
    gone = Path("/machine/of/the/driver/artifacts") / ("a" * 16) / "weights.npz"
    assert artifacts.located(gone) == found.weights
    assert artifacts.located(made.weights) == made.weights


def test_a_place_for_models_that_makes_no_sense_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("BENCH_ARTIFACTS", "nowhere://bucket")
    with pytest.raises(UsageError, match="BENCH_ARTIFACTS is 'nowhere://bucket'"):
        artifacts.find("c" * 64)
    (tmp_path / "file").touch()
    monkeypatch.setenv("BENCH_ARTIFACTS", f"file://{tmp_path}/file/below")
    with pytest.raises(BenchError, match="cannot copy artifact"):
        artifacts.save("d" * 64, {}, {"x": np.ones(1)}, {})
