"""The harness's side of `Workshop`: trains an attacker's models by the preset's recipes, and keeps them as artifacts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import registry
from bench.api import Defence, TrainedClassifier, Workshop
from bench.data.datasets import Dataset
from bench.models import artifacts, brought, catalogue
from bench.models import recipe as recipes
from bench.models.architecture import Architecture
from bench.models.brought import Given
from bench.models.inference import classify
from bench.models.recipe import Recipe
from bench.models.training import Trainer
from bench.models.weights import read_arrays
from bench.spec import Spec
from bench.support.cache import home
from bench.support.fingerprint import fingerprint, of_file
from bench.support.progress import progress_lines

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class TrainingWorkshop(Workshop):
    """A workshop for attacks on one defended model. It never saw the private key."""

    spec: Spec
    dataset: Dataset
    defence_name: str
    defence: Defence
    weights: Path
    """Of the defended classifier."""
    defended: str | None
    """Its artifact's fingerprint; None if the weights were given as a file."""
    own_models: Mapping[str, Given]
    may_train: bool
    say: Callable[[str], None]
    command: str = ""
    """What trains its models ahead of time, if it is not `bench train`."""
    network: Architecture | None = None
    """Of the defended classifier, if it was made elsewhere: the attacker's models of the same defence have it too."""
    used: list[artifacts.Artifact] = dataclasses.field(default_factory=list)
    """The artifacts of all models that it was asked for, the latest last."""

    def classifier(
        self, defence: str, settings: Mapping[str, Any], key: int | None = None, role: str = ""
    ) -> TrainedClassifier:
        return self._classifier(defence, settings, key, role, None if key is None else self.network)

    def _classifier(
        self, defence: str, settings: Mapping[str, Any], key: int | None, role: str, network: Architecture | None
    ) -> TrainedClassifier:
        plugin = registry.defence(defence, settings)
        spec = catalogue.spec_for(
            self.spec,
            self.dataset,
            defence,
            plugin,
            None if key is None else f"{catalogue.ATTACKER}{key}",
            (f"{role}:{defence}", role) if role else (),
            self.defended,
            network,
        )
        if spec.start not in (None, self.defended) and artifacts.find(spec.start) is None:
            self.classifier("none", {})  # what it starts from
        artifact = catalogue.find_or_train(
            spec, key, self.may_train, self.say, self._command, f"the source {role}" if role and key is None else ""
        )
        self.used.append(artifact)
        trained = spec.load(artifact.weights, artifact.weights_sha256)
        return TrainedClassifier(plugin, trained.state, trained.model, spec.fingerprint, key)

    def front(
        self,
        role: str,
        model: keras.Model,
        after: Callable[[tf.Tensor], tf.Tensor],
        before: Callable[[tf.Tensor], tf.Tensor] | None = None,
        made_of: Mapping[str, Any] | None = None,
    ) -> None:
        recipe, _ = recipes.of_run(self.spec, f"{role}:{self.defence_name}", role)
        described = {
            "what": role,
            "dataset": self.dataset.name,
            "training_images": self.dataset.training_fingerprint,
            "defence": catalogue.described(self.defence_name, self.defence),
            "key": None,
            "against": of_file(self.weights),
            "front": [[type(layer).__name__, [list(w.shape) for w in layer.weights]] for layer in model.layers],
            "recipe": recipe.as_json(),
            "made_of": dict(made_of or {}),
        }
        found = artifacts.find(fingerprint(described))
        if found is None:
            name = f"the {role} of {self.defence_name}"
            catalogue.refuse_to_train(name, self.may_train, self._command)
            with catalogue.training_alone(fingerprint(described), name, self.say):
                found = artifacts.find(fingerprint(described))
                if found is None:
                    self.say(f"training {name} (kept for later)")
                    found = self._train_front(described, name, recipe, model, after, before)
            self.say(f"{name}: {100 * found.record['clean_accuracy']:.2f} % of the test images right by itself")
        self.used.append(found)
        arrays = read_arrays(found.weights)
        model.set_weights([arrays[str(i)] for i in range(len(model.weights))])

    def _train_front(
        self, described: Mapping[str, Any], name: str, recipe: Recipe, model: keras.Model, after: Any, before: Any
    ) -> artifacts.Artifact:
        import tensorflow as tf

        began, identity, before = time.monotonic(), fingerprint(described), before or tf.identity
        checkpoint = home() / "training" / f"{identity[:16]}.npz"
        classes = len(self.dataset.classes)
        data = recipe.learnt_from(self.dataset.training())
        trainer = Trainer(model, recipe, data, classes, before, after)
        with progress_lines(self.say)(f"training {name}", recipe.epochs) as tracker:
            trainer.run(checkpoint, catalogue.epochs(tracker))
        logits = classify(lambda inputs, training: after(model(inputs, training=training)), before, self.dataset.shape)
        test = self.dataset.test
        record = {
            **catalogue.provenance(began),
            "clean_accuracy": catalogue.accuracy(logits, test),
            "test_images": len(test),
        }
        artifact = artifacts.save(identity, described, _by_place(model), record)
        checkpoint.unlink(missing_ok=True)
        return artifact

    def user_model(self, name: str) -> keras.Model:
        given = self.own_models[name]
        if given.is_network:
            return self._classifier("none", {}, None, "", Architecture.read(given.model)).classifier
        return brought.for_images(given, self.dataset).model

    @property
    def _command(self) -> str:
        return self.command or f"bench train --defence {self.defence_name} --source all --preset {self.spec.preset}"


def _by_place(model: keras.Model) -> dict[str, np.ndarray]:
    return {str(i): variable.numpy() for i, variable in enumerate(model.weights)}
