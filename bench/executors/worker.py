"""The attacker's process: builds sources and runs engines. It never had the key, nor an environment that held it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from bench import in_memory, registry
from bench.api import Attacked, Batch, BenchError, Engine, Knowledge, Source
from bench.executors.base import AttackTask, Say, Setup
from bench.executors.replies import checked


class Attacker:
    """Keeps what it has built: knowledge by defended model, sources by name, engines by settings."""

    def __init__(self, say: Say, built_in_probes: bool = False) -> None:
        """`built_in_probes` leaves out the probes of other packages."""
        self._say = say
        self._built_in_probes = built_in_probes
        self._knowledge: dict[Path, Knowledge] = {}
        self._sources: dict[tuple[Path, str, str], Source] = {}
        self._engines: dict[tuple[Path, str, str, str], Engine] = {}

    def prepare(self, task: AttackTask) -> None:
        """Builds the task's source, and trains what it needs, if that was not done before."""
        self.source(task.setup, task.strategy, task.source)

    def run(self, task: AttackTask, report: Callable[[int], None]) -> Attacked:
        """The engine's result; raises BenchError if it is none that can be stored."""
        source = self.source(task.setup, task.strategy, task.source)
        key = (task.setup.weights, task.source, task.engine, repr(sorted(task.engine_settings.items())))
        if key not in self._engines:
            self._engines[key] = registry.engine(task.engine, task.engine_settings)
        engine = self._engines[key]
        if engine.needs_gradient and not source.has_gradient:
            raise BenchError(
                f"{task.engine} needs gradients, and {task.source} gives none: only black-box engines run on it"
            )
        shape = task.batch.images.shape
        attacked = checked(engine.run(source, task.batch, report), shape)
        return checked(self._probed(engine, source, task.batch, attacked), shape)

    def _probed(self, engine: Engine, source: Source, batch: Batch, attacked: Attacked) -> Attacked:
        """Adds the flags that probes of the source (entry-point group `bench.probes`) raise after a gradient attack."""
        if not engine.needs_gradient:
            return attacked
        flags = dict(attacked.flags)
        for probe in registry.probes(self._built_in_probes).values():
            flags |= probe.flags(source, batch, attacked, engine.work(1))
        return dataclasses.replace(attacked, flags=flags)

    def source(self, setup: Setup, strategy: str, name: str) -> Source:
        """A strategy's source against a defended model, built (and trained) on first use."""
        in_memory.install(setup.given)
        key = (setup.weights, strategy, name)
        if key not in self._sources:
            settings = setup.spec.strategies(setup.defence_name).get(strategy, {})
            self._sources[key] = registry.strategy(strategy, settings).build(name, self.known(setup))
        return self._sources[key]

    def known(self, setup: Setup) -> Knowledge:
        """What the attacker knows of a defended model."""
        if setup.weights not in self._knowledge:
            from bench.data import datasets
            from bench.models import artifacts, classifier
            from bench.models.workshop import TrainingWorkshop

            dataset = datasets.load(setup.dataset)
            defence = registry.defence(setup.defence_name, setup.defence_settings)
            shape, classes = dataset.shape, len(dataset.classes)
            weights = artifacts.local_weights(setup.weights)
            found = classifier.load(setup.network, defence.output_shape(shape), classes, weights, setup.weights_sha256)
            workshop = TrainingWorkshop(
                setup.spec, dataset, setup.defence_name, defence, weights, setup.defended, setup.own_models,
                setup.may_train, self._say, setup.command, setup.network if setup.brought else None,
            )  # fmt: skip
            self._knowledge[setup.weights] = Knowledge(
                defence, setup.defence_name, found.state, found.model, shape, classes, workshop, setup.guess
            )
        return self._knowledge[setup.weights]
