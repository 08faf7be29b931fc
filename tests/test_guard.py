"""A test that is not marked `needs_process` starts none, whatever way it tries: this is what `make quick` rests on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parent.parent
CONFTEST = """
from tests import guard

def pytest_configure(config):
    guard.install()
    config.pluginmanager.register(guard)
"""
MADE = """
import contextlib, multiprocessing, os, subprocess, sys
import pytest

def by_run(): subprocess.run(["true"], check=True)
def by_fork():
    if os.fork() == 0:
        os._exit(0)
def by_system(): os.system("true")
def by_posix_spawn(): os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
def by_multiprocessing():
    process = multiprocessing.get_context("spawn").Process(target=print)
    process.start()
    process.join(60)
def unnoticed():
    with contextlib.suppress(Exception):
        by_run()

WAYS = [by_run, by_fork, by_system, by_posix_spawn, by_multiprocessing, unnoticed]

@pytest.mark.parametrize("way", WAYS)
def test_refused(way): way()

@pytest.fixture(scope="module")
def started(): by_run()

def test_refused_in_a_fixture(started): pass

@pytest.mark.needs_process
@pytest.mark.parametrize("way", WAYS)
def test_allowed(way): way()

def test_git_is_allowed(): subprocess.run(["git", "--version"], check=True)
def test_nothing_is_started(): pass
"""


@pytest.mark.needs_process
def test_tests_that_are_not_marked_start_no_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_made.py").write_text(MADE)
    options = ("-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "no:cacheprovider", "-v")
    said = run([sys.executable, "-m", "pytest", *options, tmp_path], cwd=ROOT).stdout
    refused = [
        f"test_refused[{way}]" for way in ("by_run", "by_fork", "by_system", "by_posix_spawn", "by_multiprocessing")
    ]
    for name in (*refused, "test_refused[unnoticed]"):
        assert f"test_made.py::{name} FAILED" in said, said
    assert "test_made.py::test_refused_in_a_fixture ERROR" in said
    assert "6 failed, 8 passed, 1 error" in said
    assert "mark it, or its file, needs_process" in said
