"""Runs tasks that compute with the private key, which is outside every threat model: beside the referee, in the driver.

The key never goes to a worker process; in exchange only engines, strategies and probes of this package run here.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Iterator

from bench import registry
from bench.api import BenchError
from bench.executors.pool import Outcome
from bench.executors.worker import Attacker, Task
from bench.keys import PrivateKey


class KeyedExecutor:
    """One task after the other, in this process."""

    name = "inside"

    def __init__(self, key: PrivateKey | None, say: Callable[[str], None]) -> None:
        self._key, self._attacker = key, Attacker(say, built_in_probes=True)

    def run(
        self, take: Callable[[], tuple[int, Task] | None], progress: Callable[[int, int], None]
    ) -> Iterator[Outcome | None]:
        """As the other executors'."""
        while (taken := take()) is not None:
            index, task = taken
            began = time.monotonic()
            try:
                attacked = self._attacker.run(self._with_key(task), lambda amount, i=index: progress(i, amount))
                yield Outcome(index, attacked, time.monotonic() - began, None)
            except BenchError as error:
                yield Outcome(index, None, 0.0, str(error))
            except Exception as error:
                # No traceback of its frames' values; its text names lines of code only.
                yield Outcome(
                    index, None, 0.0, " ".join(f"{type(error).__name__}: {error}".split()), traceback.format_exc()
                )

    def close(self) -> None:
        """There is nothing to end."""

    def _with_key(self, task: Task) -> Task:
        for name in (task.engine, task.strategy):
            entry = registry.entry("attacks", name)
            if not entry.built_in:
                raise BenchError(
                    f"{name} is of package {entry.package}: only built-in attacks are run with the private key"
                )
        assert self._key is not None
        return dataclasses.replace(task, setup=dataclasses.replace(task.setup, guess=self._key.reveal()))
