"""The attacker's process: builds sources and runs engines. It never had the key, nor an environment that held it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import in_memory, registry
from bench.api import Attacked, Batch, BenchError, Engine, Finding, HealthBudget, Knowledge, Source
from bench.executors.base import HEALTH, AttackTask, Say, Setup
from bench.executors.replies import checked, unchanged
from bench.support.text import one_line


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
        probes = registry.probes(self._built_in_probes).items()
        return _with(attacked, [(name, probe.of_attack(source, batch, part)) for name, probe in probes], task.probed)

    def _checked(self, source: Source, task: AttackTask) -> Attacked:
        """What probes find of a source; the images are as they were."""
        budget, images = HealthBudget(**task.engine_settings), task.batch.images
        probes = registry.probes(self._built_in_probes).items()
        found = [(name, probe.of_source(source, task.batch, budget)) for name, probe in probes]
        return checked(_with(unchanged(images), found, len(images)), images.shape)

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


def _with(attacked: Attacked, said: Sequence[tuple[str, Mapping[str, Finding]]], examples: int) -> Attacked:
    """An attack's result with what probes, by name, have found on so many examples.

    What its engine has counted stays as it is, and of two probes that count the same the one that found more is heard.
    """
    found: dict[str, Finding] = {}
    for probe, findings in said:
        for name, finding in _checked_findings(probe, findings, examples).items():
            if not attacked.flags.get(name) and finding.found >= found.get(name, finding).found:
                found[name] = finding
    return dataclasses.replace(
        attacked,
        flags={**attacked.flags, **{name: finding.found for name, finding in found.items() if finding.found}},
        examined={name: finding.examined for name, finding in found.items()},
    )


def _checked_findings(probe: str, findings: object, examples: int) -> dict[str, Finding]:
    """What a probe has found; raises BenchError for what cannot be."""
    if not isinstance(findings, Mapping):
        raise BenchError(f"probe {probe} returned {type(findings).__name__}, not a mapping of names to findings")
    for name, finding in findings.items():
        if not isinstance(finding, Finding) or not 0 <= finding.found <= finding.examined <= examples:
            raise BenchError(
                f"probe {probe} returned {one_line(repr(finding), 80)} as {one_line(name, 80)}, not a Finding with at most "
                f"{examples} examined examples, and no more found than examined"
            )
    return dict(findings)
