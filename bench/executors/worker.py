"""The attacker's process: builds sources and runs engines. It never had the key, nor an environment that held it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import in_memory, registry
from bench.api import Attacked, Batch, BenchError, Engine, Finding, HealthBudget, Knowledge, Source
from bench.executors.base import HEALTH, AttackTask, Say, Setup
from bench.executors.replies import checked, unchanged


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
        if task.engine == HEALTH:
            return self._checked(source, task)
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
        if not engine.needs_gradient or not task.probed:
            return attacked
        return checked(self._probed(source, task, attacked), shape)

    def _probed(self, source: Source, task: AttackTask, attacked: Attacked) -> Attacked:
        """Adds what probes (entry-point group `bench.probes`) find of a gradient attack, on its first examples."""
        first = slice(task.probed)
        batch, part = _examples(task.batch, first), _results(attacked, first)
        found: dict[str, Finding] = {}
        for probe in registry.probes(self._built_in_probes).values():
            found |= probe.of_attack(source, batch, part)
        return _with(attacked, found)

    def _checked(self, source: Source, task: AttackTask) -> Attacked:
        """What probes find of a source; the images are as they were."""
        budget, found = HealthBudget(**task.engine_settings), dict[str, Finding]()
        for probe in registry.probes(self._built_in_probes).values():
            found |= probe.of_source(source, task.batch, budget)
        return checked(_with(unchanged(task.batch.images), found), task.batch.images.shape)

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


def _examples(batch: Batch, chosen: slice) -> Batch:
    return dataclasses.replace(
        batch, images=batch.images[chosen], labels=batch.labels[chosen], seeds=batch.seeds[chosen]
    )


def _results(attacked: Attacked, chosen: slice) -> Attacked:
    """Some examples of an attack's result, without its counts over all of them."""
    columns = {
        field.name: value[chosen]
        for field in dataclasses.fields(attacked)
        if field.name not in ("flags", "examined") and (value := getattr(attacked, field.name)) is not None
    }
    return Attacked(**columns)


def _with(attacked: Attacked, found: Mapping[str, Finding]) -> Attacked:
    """An attack's result with what probes have found; what its engine has counted itself stays as it is."""
    new = {name: finding for name, finding in found.items() if name not in attacked.flags}
    return dataclasses.replace(
        attacked,
        flags={**attacked.flags, **{name: finding.found for name, finding in new.items() if finding.found}},
        examined={name: finding.examined for name, finding in new.items()},
    )
