"""The attacker's process: builds sources and runs engines. It never had the key, nor an environment that held it."""

from __future__ import annotations

import dataclasses
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench import registry
from bench.api import Attacked, Batch, BenchError, Engine, Knowledge, Source, Strategy, TrainedClassifier, Workshop
from bench.spec import Spec


@dataclasses.dataclass(frozen=True)
class Setup:
    """What an attacker may know of a defended model, in a form that can be sent to another process."""

    spec: Spec
    dataset: str
    defence_name: str
    defence_settings: Mapping[str, Any]
    depth: int
    width: int
    weights: Path
    may_train: bool


@dataclasses.dataclass(frozen=True)
class Task:
    """A shard of a cell."""

    setup: Setup
    engine: str
    engine_settings: Mapping[str, Any]
    source: str
    strategy: str
    batch: Batch


# Messages to the driver: ("progress", work done since the last one), ("say", text), ("done", Attacked, seconds),
# ("failed", text, traceback).


def serve(pipe: Connection) -> None:
    """Takes tasks from the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    threading.Thread(target=_die_with_parent, daemon=True).start()
    from bench import devices

    devices.configure()
    attacker = Attacker(lambda text: pipe.send(("say", text)))
    tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), daemon=True).start()
    while (task := tasks.get()) is not None:
        began = time.monotonic()
        try:
            attacked = attacker.run(task, _reporter(pipe))
            pipe.send(("done", attacked, time.monotonic() - began))
        except BrokenPipeError:
            return
        except BenchError as error:
            pipe.send(("failed", str(error), ""))
        except Exception as error:
            pipe.send(("failed", f"{type(error).__name__}: {error}".strip(), traceback.format_exc()))


def _receive(pipe: Connection, tasks: queue.SimpleQueue[Task | None]) -> None:
    """Takes tasks off the pipe as they come: if both ends waited to send, neither would ever read."""
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        tasks.put(None)


def _die_with_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _reporter(pipe: Connection) -> Any:
    """Passes progress on a few times a second, not at every step."""
    waiting, last = 0, time.monotonic()

    def report(amount: int) -> None:
        nonlocal waiting, last
        waiting += amount
        if time.monotonic() - last > 0.2:
            pipe.send(("progress", waiting))
            waiting, last = 0, time.monotonic()

    return report


class Attacker:
    """Keeps what it has built: knowledge by defended model, sources by name, engines by settings."""

    def __init__(self, say: Any) -> None:
        self._say = say
        self._knowledge: dict[Path, Knowledge] = {}
        self._sources: dict[tuple[Path, str, str], Source] = {}
        self._engines: dict[tuple[Path, str, str, str], Engine] = {}

    def run(self, task: Task, report: Any) -> Attacked:
        source = self._source(task)
        key = (task.setup.weights, task.source, task.engine, repr(sorted(task.engine_settings.items())))
        if key not in self._engines:
            self._engines[key] = registry.create("attacks", task.engine, task.engine_settings)
        engine = self._engines[key]
        if engine.needs_gradient and not source.has_gradient:
            raise BenchError(
                f"{task.engine} needs gradients, and {task.source} gives none: only black-box engines run on it"
            )
        return self._probed(engine, source, task.batch, engine.run(source, task.batch, report))

    def _probed(self, engine: Engine, source: Source, batch: Batch, attacked: Attacked) -> Attacked:
        """Adds the doubts that cheap probes of the source raise about an attack with gradients (`attacks.probes`)."""
        if not engine.needs_gradient or len(attacked.success) != len(batch.labels):  # the referee refuses the latter
            return attacked
        from attacks import probes

        flags = probes.flags(source, batch, attacked, engine.work(1))
        return dataclasses.replace(attacked, flags={**attacked.flags, **flags})

    def _source(self, task: Task) -> Source:
        key = (task.setup.weights, task.strategy, task.source)
        if key not in self._sources:
            strategy = registry.create("attacks", task.strategy, {})
            if not isinstance(strategy, Strategy):
                raise BenchError(f"{task.strategy} is no strategy")
            self._sources[key] = strategy.build(task.source, self._known(task.setup))
        return self._sources[key]

    def _known(self, setup: Setup) -> Knowledge:
        if setup.weights not in self._knowledge:
            from bench import artifacts, data
            from bench.networks import wide_resnet

            dataset = data.load(setup.dataset)
            defence = registry.create("defences", setup.defence_name, setup.defence_settings)
            shape, classes = dataset.shape, len(dataset.classes)
            model = wide_resnet(defence.output_shape(shape), classes, setup.depth, setup.width)
            state = artifacts.put_into(model, artifacts.read_arrays(setup.weights), setup.weights)
            workshop = HarnessWorkshop(setup, dataset, self._say)
            self._knowledge[setup.weights] = Knowledge(
                defence, setup.defence_name, state, model, shape, classes, workshop
            )
        return self._knowledge[setup.weights]


class HarnessWorkshop(Workshop):
    """Trains with the run's own recipe, and keeps what it trains among the artifacts."""

    def __init__(self, setup: Setup, dataset: Any, say: Any) -> None:
        self._setup, self._dataset, self._say = setup, dataset, say

    def classifier(self, defence: str, settings: Mapping[str, Any], key: int | None = None) -> TrainedClassifier:
        from bench import models

        plugin = registry.create("defences", defence, settings)
        spec = models.spec_for(
            self._setup.spec, self._dataset, defence, plugin, None if key is None else f"attacker:{key}"
        )
        artifact = models.obtain(spec, key, self._setup.may_train, self._say)
        trained = models.load(spec, artifact)
        return TrainedClassifier(plugin, trained.state, trained.model, spec.fingerprint)
