"""What all tests share: a cache folder of their own, and children that can be interrupted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import guard
from tests.archives import packed as packed
from tests.honest import honest as honest
from tests.postgres import postgres as postgres
from tests.processes import allow_interrupts
from tests.processes import bench as bench
from tests.stores import database as database
from tests.stores import new_url as new_url

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # as `bench.support.devices` has it for runs


# How long a draw or an example takes says how busy the machine is, and nothing about what is tested.
settings.register_profile("bench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bench")


def pytest_configure(config: pytest.Config) -> None:
    allow_interrupts()
    guard.install()
    config.pluginmanager.register(guard)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder: tests see the shipped models and data only, and leave nothing behind."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("BENCH_HOME", str(folder))
    monkeypatch.delenv("BENCH_KEY", raising=False)
    return folder
