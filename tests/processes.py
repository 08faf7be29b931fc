"""How tests start other processes: with a default SIGINT, with a limit on every wait, and nothing left running after."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LIMIT = 600.0
"""Seconds that a child may take unless a test says otherwise; less than a test's own limit (pyproject.toml)."""
ENDED = 30.0
"""Seconds until a process that was killed, and its pipes, are gone."""


def allow_interrupts() -> None:
    """Gives this process, and so its children, a SIGINT that works: shells start background jobs with it ignored.

    A handler in Python is the default action in a child: only an ignored signal stays ignored in a new program.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def started(
    command: Sequence[object], cwd: Path | None = None, environment: dict[str, str] | None = None, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A child in a process group of its own, with its output in pipes; the whole group is killed at the end."""
    settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    process = subprocess.Popen(
        [str(word) for word in command], cwd=cwd, env={**os.environ, **(environment or {})}, start_new_session=True,
        **settings,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(ENDED)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def run(
    command: Sequence[object],
    cwd: Path | None = None,
    timeout: float = LIMIT,
    check: bool = False,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; after `timeout` seconds it is killed, with everything that it started."""
    with started(command, cwd, environment) as process:
        output, errors = process.communicate(timeout=timeout)
    if check:
        assert process.returncode == 0, f"{command} ended with {process.returncode}: {errors}"
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def python(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own."""
    return run([sys.executable, "-c", code, *arguments], **options)


def bench(
    *arguments: object, cwd: Path, timeout: float = LIMIT, **environment: Any
) -> subprocess.CompletedProcess[str]:
    """Runs `bench …` in a folder, as a user would."""
    return run(bench_command(*arguments), cwd, timeout, environment=environment)


def bench_command(*arguments: object) -> list[str]:
    """`bench …` with this Python."""
    return [sys.executable, "-m", "bench.cli", *map(str, arguments)]
