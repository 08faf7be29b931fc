"""What all tests share: a cache folder of their own, and the command line as users type it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.honest import honest as honest
from tests.postgres import postgres as postgres
from tests.stores import database as database
from tests.stores import new_url as new_url

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # as `bench.support.devices` has it for runs


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder: tests see the shipped models and data only, and leave nothing behind."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("BENCH_HOME", str(folder))
    monkeypatch.delenv("BENCH_KEY", raising=False)
    return folder


def bench(*arguments: object, cwd: Path, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `bench …` in a folder, as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "bench.cli", *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
        timeout=timeout, env={**os.environ, **environment},
    )  # fmt: skip
