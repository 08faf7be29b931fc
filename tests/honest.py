"""A small run that nobody touched, for tests of what becomes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = ("run", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--preset", "smoke", "--examples", "6",
       "--norm", "linf", "--shard-size", "3")  # fmt: skip


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run that nobody touched."""
    folder = tmp_path_factory.mktemp("honest")
    subprocess.run(
        [sys.executable, "-m", "bench.cli", *RUN], cwd=folder, check=True, capture_output=True,
        env={**os.environ, "BENCH_HOME": str(folder / "home")},
    )  # fmt: skip
    return folder
