"""The attacker's process: builds sources and runs engines. It never had the key, nor an environment that held it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
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


class Attacker:
    """Keeps what it has built: knowledge by defended model, sources by name, engines by settings."""

    def __init__(self, say: Any) -> None:
        self._say = say
        self._knowledge: dict[Path, Knowledge] = {}
        self._sources: dict[tuple[Path, str, str], Source] = {}
        self._engines: dict[tuple[Path, str, str, str], Engine] = {}

    def prepare(self, task: Task) -> None:
        """Builds the task's source, and trains what it needs, if that was not done before."""
        self._source(task)

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
        return engine.run(source, task.batch, report)

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
            weights = artifacts.located(setup.weights)
            state = artifacts.put_into(model, artifacts.read_arrays(weights), weights)
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
