"""One defended model, ready to be judged: the defence, its classifier, the examples, and the identity of its boards."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.api import Defence, UsageError
from bench.data import datasets
from bench.data.datasets import Dataset, Split
from bench.evaluation.referee import Referee
from bench.executors.base import Setup
from bench.keys import PrivateKey
from bench.models import catalogue
from bench.models.classifier import Classifier
from bench.plan import Pair
from bench.spec import Spec
from bench.support.fingerprint import canonical, fingerprint, of_file


@dataclasses.dataclass(frozen=True)
class Contest:
    """A defended model and the test examples it is attacked on."""

    spec: Spec
    dataset: Dataset
    defence_name: str
    defence: Defence
    key: PrivateKey | None
    classifier_spec: catalogue.ClassifierSpec
    classifier: Classifier
    weights: Path
    defended: str | None
    """The artifact's fingerprint; None if the weights were given as a file."""
    examples: Split
    own_models: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    """Models the user brings as sources, by the source's name."""
    guess: int | None = None
    """A key the attacker has found."""
    command: str = ""
    """What trains its sources ahead of time, if it is not `bench train`."""

    @functools.cached_property
    def images(self) -> np.ndarray:
        """The examples' images (N×H×W×3, float32, [0,1])."""
        return self.examples.unit()

    @functools.cached_property
    def referee(self) -> Referee:
        return Referee(self.defence, self.classifier, self.key, self.dataset.shape)

    @property
    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self.defence.settings)

    def setup(self, may_train: bool) -> Setup:
        """What an attacker may know of it, to be sent to another process."""
        return Setup(
            self.spec,
            self.spec.dataset,
            self.defence_name,
            self.settings,
            self.classifier_spec.recipe.network,
            self.weights,
            self.classifier.weights_sha256,
            self.defended,
            self.own_models,
            self.guess,
            may_train,
            self.command,
        )

    def defence_row(self) -> dict[str, Any]:
        return defence_row(
            self.defence_name, self.defence, self.classifier.weights_sha256, self.key.id if self.key else None
        )

    def board_row(self, norm: str, defence_id: int) -> dict[str, Any]:
        identity = {
            "defence": self.defence_row()["fingerprint"],
            "examples": self.examples.fingerprint,
            "norm": norm,
            "epsilon": self.spec.epsilon[norm],
        }
        return {
            "defence_id": defence_id,
            "dataset": self.dataset.name,
            "examples_sha256": self.examples.fingerprint,
            "norm": norm,
            "epsilon": self.spec.epsilon[norm],
            "n_examples": len(self.examples),
            "fingerprint": fingerprint(identity),
        }

    def attack_row(self, pair: Pair) -> dict[str, Any]:
        settings = dataclasses.asdict(pair.settings)
        identity = {"name": pair.engine, "version": pair.engine_version, "settings": settings, "seed": self.spec.seed}
        return {
            "name": pair.engine,
            "version": pair.engine_version,
            "params_json": canonical({**settings, "seed": self.spec.seed}),
            "fingerprint": fingerprint(identity),
        }

    def source_row(self, pair: Pair) -> dict[str, Any]:
        """A source is what it is by its strategy, the attacker's training, and the defended model it was made against."""
        version = registry.entry("attacks", pair.strategy).load().version
        made_of = {
            "strategy": pair.strategy,
            "settings": self.spec.strategies(self.defence_name).get(pair.strategy, {}),
            "training": dict(self.spec.training),
            "recipes": self.spec.recipes_of(pair.description.recipes, self.defence_name),
            "training_images": self.dataset.training_fingerprint,
            "against": self.defence_row()["fingerprint"],
        }
        if pair.source in self.own_models:
            made_of["model_sha256"] = of_file(self.own_models[pair.source])
        if pair.needs_guess:
            made_of["guess"] = self.guess
        identity = {"name": pair.source, "version": version, **made_of}
        return {
            "name": pair.source,
            "version": version,
            "params_json": canonical(made_of),
            "fingerprint": fingerprint(identity),
        }


def defence_row(name: str, defence: Defence, weights_sha256: str, key_id: str | None) -> dict[str, Any]:
    """A defended model's row: the algorithm and its settings, the classifier's weights, and the name of the key."""
    settings = dataclasses.asdict(defence.settings)
    identity = {
        "name": name,
        "version": defence.version,
        "settings": settings,
        "weights": weights_sha256,
        "key": key_id,
    }
    return {
        "name": name,
        "version": defence.version,
        "params_json": canonical(settings),
        "fingerprint": fingerprint(identity),
        "keyed": defence.keyed,
        "key_id": key_id,
        "weights_sha256": weights_sha256,
        "description": registry.entry("defences", name).description,
    }


def prepare(
    spec: Spec,
    request: str,
    key: PrivateKey,
    weights: Path | None,
    may_train: bool,
    say: Any,
    own_models: Mapping[str, Path] | None = None,
    guess: int | None = None,
    command: str = "",
) -> Contest:
    """Loads, or trains, everything a defended model needs. `request` is name[setting=value,…].

    `command` is what trains its models ahead of time, if it is not `bench train`.
    """
    name, defence = spec.defence(request)
    dataset = datasets.load(spec.dataset)
    examples = dataset.examples(spec.examples)
    own_key = key if defence.keyed else None
    classifier_spec = catalogue.spec_for(spec, dataset, name, defence, own_key.id if own_key else None)
    defended = None
    if weights is not None:
        if not weights.exists():
            raise UsageError(f"weights file {weights} does not exist")
        classifier = classifier_spec.load(weights)
    else:
        ahead = command or f"bench train --defence {shlex.quote(request)} --preset {spec.preset}"
        artifact = catalogue.find_or_train(
            classifier_spec, own_key.reveal() if own_key else None, may_train, say, ahead
        )
        weights, defended = artifact.weights, artifact.fingerprint
        classifier = classifier_spec.load(weights, artifact.weights_sha256)
    return Contest(
        spec, dataset, name, defence, own_key, classifier_spec, classifier, weights, defended, examples,
        own_models or {}, guess, command,
    )  # fmt: skip
