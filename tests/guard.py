"""Holds tests to what they declare: one without the marker `needs_process` starts no other process.

`make quick` leaves the marked ones out, so it is quick everywhere and needs no browser, no server and no Ray. The rule is
held in every run of the tests, for a test and for all its fixtures.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec"})
"""Events of Python's audit (PEP 578) that start a program or a process. multiprocessing raises none of them."""


FIXTURES = frozenset({"honest", "postgres", "browser"})
"""Fixtures that start processes: a test that uses one need not be marked."""
ALLOWED = frozenset({"git", "uname", "ldconfig"})
"""Programs that any test may start: a run asks git for the commit that it notes down; Python's own modules `platform` and
`ctypes.util`, which libraries call as they are imported, ask the others."""


class StartedProcess(AssertionError):
    """A test that is not marked started a process."""


class Guard:
    """Knows which test is running, and refuses processes to those that are not marked."""

    def __init__(self) -> None:
        self.running: pytest.Item | None = None
        self.refused: list[str] = []

    def check(self, what: str) -> None:
        if self.running is not None and self.running.get_closest_marker("needs_process") is None:
            self.refused.append(what)
            raise StartedProcess(
                f"{self.running.nodeid} starts a process ({what}): mark it, or its file, needs_process"
            )

    def watch(self, item: pytest.Item) -> Generator[None, object, object]:
        """Holds a test to its marker while it is set up or called; what ends after it may be another test's fixture."""
        self.running = item
        try:
            return (yield)
        finally:
            self.running = None

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS and Path(program := str(next(iter(arguments), ""))).name not in ALLOWED:
            self.check(f"{event} {program[:80]}".strip())


GUARD = Guard()


def install() -> None:
    """Watches this process from now on; an audit hook cannot be taken out again."""
    sys.addaudithook(GUARD.audit)
    start = BaseProcess.start

    def guarded(self: BaseProcess) -> None:
        GUARD.check(f"multiprocessing {self.name}")
        start(self)

    BaseProcess.start = guarded  # type: ignore[method-assign]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what uses a fixture that starts processes."""
    for item in items:
        if isinstance(item, pytest.Function) and not FIXTURES.isdisjoint(item.fixturenames):
            item.add_marker("needs_process")


def pytest_runtest_logstart() -> None:
    GUARD.refused.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from GUARD.watch(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from GUARD.watch(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails the test even where the code under test swallowed the refusal."""
    report = yield
    if report.when == "call" and report.passed and GUARD.refused:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} starts a process ({GUARD.refused[0]}): mark it, or its file, needs_process"
    return report
