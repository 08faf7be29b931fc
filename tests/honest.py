"""A small run that nobody touched, for tests of what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import bench

RUN = ("run", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--preset", "smoke", "--examples", "6",
       "--norm", "linf", "--shard-size", "3")  # fmt: skip


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run that nobody touched."""
    folder = tmp_path_factory.mktemp("honest")
    done = bench(*RUN, cwd=folder, BENCH_HOME=str(folder / "home"))
    assert done.returncode == 0, done.stderr
    return folder
