"""Runs tasks that compute with the private key, which is outside every threat model: beside the referee, where the key is.

The key never goes to a worker process; in exchange only engines, strategies, norms and probes of this package run here.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any

from bench import norms, registry
from bench.api import BenchError
from bench.entry_points import Entry
from bench.executors.base import HEALTH, AttackTask, Outcome, ReportProgress, Say, TakeTask
from bench.executors.child import error_report
from bench.executors.worker import Attacker
from bench.keys import PrivateKey


class KeyedExecutor:
    """One task after the other, in this process."""

    name = "inside"  # as stored since the first version
    shares_files = True

    def __init__(self, key: PrivateKey | None, say: Say) -> None:
        self._key, self._attacker = key, Attacker(say, built_in_probes=True)

    def run(self, take: TakeTask, progress: ReportProgress) -> Iterator[Outcome | None]:
        """As `Executor.run`."""
        while (task := take()) is not None:
            began = time.monotonic()
            try:
                attacked = self._attacker.run(self._with_key(task), functools.partial(progress, task.index))
                yield Outcome(task.index, attacked, time.monotonic() - began, None)
            except Exception as error:
                yield Outcome(task.index, None, 0.0, *error_report(error))

    def close(self) -> None:
        """There is nothing to end."""

    def _with_key(self, task: AttackTask) -> AttackTask:
        names = [task.strategy, *([] if task.engine == HEALTH else [task.engine])]
        used: list[Entry[Any]] = [registry.entry("attacks", name) for name in names]
        used.append(norms.entries()[task.batch.norm])  # its ball is part of the attack
        for entry in used:
            if not entry.built_in:
                raise BenchError(
                    f"{entry.name} is of package {entry.package}: only built-in attacks are run with the private key"
                )
        assert self._key is not None
        return dataclasses.replace(task, setup=dataclasses.replace(task.setup, guess=self._key.reveal()))
