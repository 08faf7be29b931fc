"""What an executor is: it takes tasks, has them attacked somewhere, and gives their outcomes.

Executors are plug-ins of the entry-point group `bench.executors`. A package adds one by a class:

    class Cluster(ExecutorPlugin):
        \"""Workers on our cluster.\"""

        def start(self, name: str, limits: Limits, say: Say) -> Executor:
            return PoolExecutor(name, ClusterPool(limits), limits, say)

`bench run --executor cluster` then uses it. Retries and time limits are the work of `bench.executors.pool.PoolExecutor`; an
executor that needs none of them is any class with the methods of `Executor`. What runs attacks may be hostile: a pool speaks
with its workers over a `bench.executors.channel.Channel`, by a `Conversation`, as `bench.executors.local` does.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bench import entry_points, registry
from bench.api import Attacked, Batch, Plugin, UsageError
from bench.entry_points import Entry, Group
from bench.models.architecture import Architecture
from bench.models.brought import Given
from bench.spec import Spec

Say = Callable[[str], None]
"""Shows a line to the user."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """What an attacker may know of a defended model, in a form that can be sent to another process."""

    spec: Spec
    dataset: str
    defence_name: str
    defence_settings: Mapping[str, Any]
    network: Architecture
    weights: Path
    weights_sha256: str
    defended: str | None
    own_models: Mapping[str, Given]
    guess: int | None
    may_train: bool
    command: str = ""
    """What trains its sources ahead of time, if it is not `bench train`."""
    brought: bool = False
    """Whether the classifier was made elsewhere: then the attacker's models of the same defence have its network."""
    given: bytes = b""
    """Plug-ins that no package registers, as `bench.in_memory` packs them."""


@dataclasses.dataclass(frozen=True)
class AttackTask:
    """A shard of a cell, to be attacked. Its index tells it from the other tasks of one call of `Executor.run`."""

    index: int
    setup: Setup
    engine: str
    engine_settings: Mapping[str, Any]
    source: str
    strategy: str
    batch: Batch
    probed: int = 0
    """The first so many examples of the batch are checked after the attack (`bench.api.Probe.of_attack`)."""


HEALTH = ":health"  # no plug-in can have this name
"""In place of an engine: the source itself is checked (`bench.api.Probe.of_source`), by a `HealthBudget` as settings. What
comes back is the images as they were, with flags."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a task: the attack's result, or why there is none."""

    index: int
    attacked: Attacked | None
    seconds: float
    error: str | None
    detail: str = ""
    """The traceback of an error that nobody expected."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many workers there are, and what each may take."""

    workers: int = 1
    seconds: float | None = None  # for an attack on one shard; training a source does not count
    memory: int | None = None  # bytes of a worker's process


TakeTask = Callable[[], AttackTask | None]
"""The next task, or None when there is none left."""
ReportProgress = Callable[[int, int], None]
"""Takes a task's index, and how much work was done on it since the last time."""


class Executor(Protocol):
    """Runs tasks, in whatever order and place, and reports what became of each."""

    @property
    def name(self) -> str:
        """What is stored as the worker of every shard that it ran."""

    @property
    def shares_files(self) -> bool:
        """Whether its workers read this machine's files; for others, models are offered at BENCH_ARTIFACTS."""

    def run(self, take: TakeTask, progress: ReportProgress) -> Iterator[Outcome | None]:
        """The outcome of every task that `take` gives until it gives None, as they come; None now and then, as a heartbeat.

        `take` is called when there is room for a task, for a task carries its images.
        """

    def close(self) -> None:
        """Ends everything that was started, at once."""


class ExecutorPlugin(Plugin):
    """A kind of executor, by its name; its settings are those of one `--executor 'NAME[setting=value,…]'`."""

    in_all: ClassVar[bool] = False

    @abc.abstractmethod
    def start(self, name: str, limits: Limits, say: Say) -> Executor:
        """The executor, which is given the name that it was asked for by. Workers may start later, with the first task."""


GROUP = Group("executors", "executor", (ExecutorPlugin,), light=True, contract="bench.executors.base")


def entries() -> dict[str, Entry[ExecutorPlugin]]:
    """Every registered executor by name."""
    return entry_points.entries(GROUP)


def start(request: str, limits: Limits, say: Say, **settings: Any) -> Executor:
    """The executor that 'NAME' or 'NAME[setting=value,…]' asks for, with these settings too."""
    name, given = registry.parse(request)
    known = entries()
    if name not in known:
        raise UsageError(
            f"--executor: unknown executor '{name}'{entry_points.did_you_mean(name, known)}; "
            f"there are {', '.join(known)}"
        )
    plugin = known[name].load()
    return plugin(registry.settings_of(plugin, name, {**given, **settings})).start(name, limits, say)
