"""One defended model, ready to be judged: the defence, its classifier, the examples, and the identity of its boards."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench import in_memory, plan, registry
from bench.api import Defence, UsageError
from bench.data import datasets
from bench.data.datasets import Dataset, Split
from bench.executors.base import Setup
from bench.keys import PrivateKey
from bench.models import artifacts, catalogue
from bench.models import brought as brought_models
from bench.models.brought import Brought, Given
from bench.plan import Pair
from bench.spec import Spec
from bench.store import descriptions, identity
from bench.store.coverage import LONGEST_PRESET, Required
from bench.store.example_sets import DIGEST_BYTES
from bench.store.identity import Row
from bench.support.fingerprint import of_file
from bench.vault.base import Defended, Judging, Made, Vault


@dataclasses.dataclass(frozen=True)
class Contest:
    """A defended model and the test examples it is attacked on."""

    spec: Spec
    dataset: Dataset
    defence_name: str
    defence: Defence
    vault: Vault
    classifier_spec: catalogue.ClassifierSpec
    weights: Path
    weights_sha256: str
    referee: Judging
    defended: str | None
    """The artifact's fingerprint; None if the weights were given as a file."""
    examples: Split
    own_models: Mapping[str, Given] = dataclasses.field(default_factory=dict)
    """Models the user brings as sources, by the source's name."""
    guess: PrivateKey | None = None
    """A key the attacker has found."""
    command: str = ""
    """What trains its sources ahead of time, if it is not `bench train`."""

    @functools.cached_property
    def images(self) -> np.ndarray:
        """The examples' images (N×H×W×3, float32, [0,1])."""
        return self.examples.unit()

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
            self.weights_sha256,
            self.defended,
            self.own_models,
            None if self.guess is None else self.guess.reveal(),
            may_train,
            self.command,
            self.classifier_spec.brought is not None,
            in_memory.packed(),
        )

    @functools.cached_property
    def defence_row(self) -> Row:
        """The defended model as the store knows it."""
        name, key_id = self.defence_name, self.vault.id if self.defence.keyed else None
        description = registry.entry("defences", name).description
        return identity.defence_row(name, self.defence, self.weights_sha256, key_id, description)

    def board_row(self, norm: str) -> Row:
        """Its board in a norm, but for the id of its defence."""
        return identity.board_row(
            self.defence_row, self.dataset.name, self.examples.fingerprint, len(self.examples), norm,
            self.spec.epsilon[norm], self.required,
        )  # fmt: skip

    @functools.cached_property
    def required(self) -> Required | None:
        """The cells that its boards must have under the run's preset; none if the preset has no attack on it."""
        pairs = plan.required(self.spec, self.defence_name, self.defence)
        return Required(self.spec.preset[:LONGEST_PRESET], pairs) if pairs else None

    @functools.cached_property
    def example_digests(self) -> bytes:
        """Its examples one by one, as the store knows them."""
        return self.examples.digests(DIGEST_BYTES)

    def attack_row(self, pair: Pair | None) -> Row:
        """A pair's attack; without a pair, that of the unperturbed images."""
        if pair is None:
            return identity.clean_row()
        settings = dataclasses.asdict(pair.settings)
        about = descriptions.of_engine(pair.engine, registry.engine(pair.engine, settings))
        return identity.attack_row(pair.engine, pair.engine_version, settings, self.spec.seed, about)

    def source_row(self, pair: Pair | None) -> Row:
        """A pair's source; without a pair, that of the unperturbed images."""
        if pair is None:
            return identity.clean_row()
        given: dict[str, Any] = {}
        if pair.source in self.own_models:
            given |= brought_models.source_identity(self.own_models[pair.source])
        if pair.needs_guess and self.guess is not None:
            given["guess"] = self.guess.id  # the key itself is written nowhere
        strategy = registry.strategy_class(pair.strategy)
        return identity.source_row(
            pair.source,
            strategy.version,
            strategy=pair.strategy,
            settings=self.spec.strategies(self.defence_name).get(pair.strategy, {}),
            training=dict(self.spec.training),
            recipes=self.spec.recipes_of(pair.description.recipes, self.defence_name),
            training_images=self.dataset.training_fingerprint,
            against=self.defence_row,
            given=given,
            about=descriptions.of_source(pair.description, pair.strategy, strategy),
        )


def prepare(
    spec: Spec,
    request: str,
    vault: Vault,
    weights: Path | None,
    may_train: bool,
    say: Any,
    own_models: Mapping[str, Given] | None = None,
    guess: PrivateKey | None = None,
    command: str = "",
    brought: Brought | None = None,
) -> Contest:
    """Loads, or trains, everything a defended model needs. `request` is name[setting=value,…].

    `command` is what trains its models ahead of time, if it is not `bench train`; `brought` is the classifier, if it was
    made elsewhere.
    """
    name, defence = spec.defence(request)
    dataset = datasets.load(spec.dataset)
    examples = dataset.examples(spec.examples)
    classifier_spec = catalogue.spec_for(spec, dataset, name, defence, vault.id if defence.keyed else None)
    defended = digest = None
    if brought is not None:
        classifier_spec = brought_models.spec_of(classifier_spec, brought)
        artifact = artifacts.find(classifier_spec.fingerprint) or vault.keep(
            Made(classifier_spec, brought.weights, brought.origin, brought_models.MEASURED)
        )
        weights, defended, digest = artifact.weights, artifact.fingerprint, artifact.weights_sha256
    elif weights is None:
        ahead = command or f"bench train --defence {shlex.quote(request)} --preset {spec.preset}"
        artifact = vault.classifier(classifier_spec, may_train, say, ahead)
        weights, defended, digest = artifact.weights, artifact.fingerprint, artifact.weights_sha256
    elif not weights.exists():
        raise UsageError(f"weights file {weights} does not exist")
    model = Defended(
        name,
        dataclasses.asdict(defence.settings),
        defence.keyed,
        classifier_spec.recipe.network,
        weights.absolute(),
        digest or of_file(weights),
        dataset.shape,
        len(dataset.classes),
    )
    return Contest(
        spec, dataset, name, defence, vault, classifier_spec, weights, model.weights_sha256, vault.referee(model),
        defended, examples, own_models or {}, guess, command,
    )  # fmt: skip
