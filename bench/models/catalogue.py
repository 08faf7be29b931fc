"""From a description of a classifier to the classifier: out of the zoo or the cache folder, or trained now."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bench
from bench import registry
from bench.api import BenchError, Defence, Shape, UsageError
from bench.data.datasets import Dataset, Split
from bench.models import artifacts, classifier, weights
from bench.models import recipe as recipes
from bench.models.architecture import Architecture
from bench.models.artifacts import Artifact
from bench.models.classifier import Classifier
from bench.models.recipe import Recipe
from bench.spec import Spec
from bench.support import locks
from bench.support.cache import home
from bench.support.fingerprint import fingerprint
from bench.support.progress import Track, Tracker, progress_lines

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bench.models.training import Progress


WARM = "-warm"
"""What the names of roles end with that start from the defended classifier, unless their recipe says otherwise."""
ATTACKER = "attacker:"
"""What the names of attackers' keys begin with."""


def described(name: str, defence: Defence) -> dict[str, Any]:
    """A defence as it stands in what is fingerprinted."""
    return {"name": name, "version": defence.version, "settings": dataclasses.asdict(defence.settings)}


class NotTrained(UsageError):
    """A model that is not there, where nothing may be trained."""


@dataclasses.dataclass(frozen=True)
class ClassifierSpec:
    """What determines a trained classifier. `key` names the key (its id, or an attacker's own key), never reveals it."""

    dataset: Dataset
    defence_name: str
    defence: Defence
    key: str | None
    recipe: Recipe
    start: str | None = None
    """The fingerprint of the classifier whose weights it starts from, for a warm start."""
    brought: str | None = None
    """The digest of a classifier that was made elsewhere: then it is nothing else that determines it."""

    def as_json(self) -> dict[str, Any]:
        trained = {"recipe": self.recipe.as_json(), "start": self.start}
        made = {"recipe": {recipes.NETWORK: self.recipe.network.as_json()}, "brought": self.brought}
        return {
            "dataset": self.dataset.name,
            "training_images": self.dataset.training_fingerprint,
            "defence": described(self.defence_name, self.defence),
            "key": self.key,
            **(trained if self.brought is None else made),
        }

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.as_json())

    @property
    def input_shape(self) -> Shape:
        """What the network reads: the shape of a transformed image."""
        return self.defence.output_shape(self.dataset.shape)

    def build(self) -> keras.Model:
        """Its network, with random weights."""
        return self.recipe.network.build(self.input_shape, len(self.dataset.classes))

    def load(self, weights: Path, sha256: str | None = None) -> Classifier:
        """The classifier with the weights of a file, whose network must be this one's."""
        return classifier.load(self.recipe.network, self.input_shape, len(self.dataset.classes), weights, sha256)


def spec_for(
    run: Spec,
    dataset: Dataset,
    defence_name: str,
    defence: Defence,
    key: str | None,
    roles: Sequence[str] = (),
    defended: str | None = None,
    network: Architecture | None = None,
) -> ClassifierSpec:
    """How a run trains the classifier of this defence; `roles` are names of recipes that come before the defence's own.

    `defended` is the fingerprint of the defended classifier, for a recipe that starts from it; `network` stands in
    place of the recipe's own, where it reads what the defence gives.
    """
    chosen, start_name = recipes.of_run(run, *roles, defence_name)
    if roles and roles[-1].endswith(WARM):
        start_name = start_name or "defended"
    if network is not None and network.reads(defence.output_shape(dataset.shape), len(dataset.classes)):
        if start_name == "nominal":
            start_name = None  # its weights are of another network
        chosen = dataclasses.replace(chosen, network=network)
    start = None
    if start_name == "defended":
        if defended is None:  # given as a file: there is nothing that names it, so train as the defence itself is
            return spec_for(run, dataset, defence_name, defence, key, network=network)
        start = defended
    elif start_name == "nominal":
        nominal = registry.defence("none", {})
        start = spec_for(run, dataset, "none", nominal, None).fingerprint
    return ClassifierSpec(dataset, defence_name, defence, key, chosen, start)


def find_or_train(
    spec: ClassifierSpec,
    key: int | None,
    may_train: bool,
    say: Callable[[str], None],
    command: str = "",
    name: str = "",
) -> Artifact:
    """The classifier's artifact; trained now, with lines of progress, if it is not there yet.

    `command` is what trains it ahead of time, `name` what to call it.
    """
    return obtained(
        spec,
        may_train,
        command or f"bench train --defence {spec.defence_name}",
        name or f"the classifier of {spec.defence_name}" + (f" under {spec.key}" if spec.key else ""),
        lambda name, notice: train_once(spec, key, name, say, progress_lines(say), notice),
    )


def obtained(
    spec: ClassifierSpec, may_train: bool, command: str, name: str, trained: Callable[[str, str], Artifact]
) -> Artifact:
    """The classifier's artifact if it is there, else what `trained`, called with a name and a notice, makes of it."""
    found = artifacts.find(spec.fingerprint)
    if found is not None:
        return found
    refuse_to_train(name, may_train, command)
    return trained(name, f"training {name} (kept for later; '{command}' does it ahead of time)")


def train_once(
    spec: ClassifierSpec, key: int | None, name: str, say: Callable[[str], None], track: Track, notice: str = ""
) -> Artifact:
    """Trains the classifier, unless another process has done so meanwhile; `notice` is said if it does."""
    with training_alone(spec.fingerprint, name, say):
        found = artifacts.find(spec.fingerprint)
        if found is not None:
            return found
        if notice:
            say(notice)
        return train(spec, key, name, track)


def training_alone(identity: str, name: str, say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Held while something is trained: by one process of those that share the cache folder, whatever their number."""
    return locks.alone(
        home() / "training" / f"{identity[:16]}.lock",
        lambda: say(f"another process is training {name}; waiting for it"),
    )


def refuse_to_train(name: str, may_train: bool, command: str) -> None:
    """Ends here if nothing may be trained."""
    if not may_train:
        raise NotTrained(f"{name} is not trained yet: run '{command}' first, or drop --no-train")


def epochs(tracker: Tracker) -> Callable[[Progress], None]:
    """Reports a training to a tracker whose total is its epochs."""

    def report(at: Progress) -> None:
        tracker.reach(at.epoch + at.step / at.steps, f"epoch {at.epoch + 1}/{at.epochs}, loss {at.loss:.3f}")

    return report


def train(spec: ClassifierSpec, key: int | None, name: str, track: Track) -> Artifact:
    """Trains the classifier (or goes on where it was interrupted), measures it on the test images, and keeps it."""
    import keras

    from bench.models.inference import classify
    from bench.models.training import Trainer
    from bench.models.transforms import TransformedCopies

    data = spec.recipe.learnt_from(spec.dataset.training())
    keras.utils.set_random_seed(spec.recipe.seed)
    model = spec.build()
    spec.recipe.network.prepare(model, data.images)
    if spec.start is not None:
        start = artifacts.find(spec.start)
        if start is None:
            raise BenchError(f"the classifier to start from, {spec.start[:16]}, is not there any more: train it first")
        weights.put_into(model, weights.read_arrays(start.weights), start.weights, partly=True)
    state = learned_state(spec.defence, data)
    checkpoint = home() / "training" / f"{spec.fingerprint[:16]}.npz"
    began = time.monotonic()

    def transform(images: tf.Tensor) -> tf.Tensor:
        return spec.defence.transform(images, key, state)

    transformed = TransformedCopies(spec, transform, data)
    copies = transformed.all(track)
    with track(f"training {name}", spec.recipe.epochs) as tracker:
        before = transformed.decode if copies else transform
        trainer = Trainer(model, spec.recipe, data, len(spec.dataset.classes), before, copies=copies)
        trainer.run(checkpoint, epochs(tracker))
    logits, test = classify(model, transform, spec.dataset.shape), spec.dataset.test
    record = {**provenance(began), "clean_accuracy": accuracy(logits, test), "test_images": len(test)}
    if spec.recipe.bfloat16:
        record["convolutions"] = "bfloat16" if trainer.in_bfloat16 else "float32"
    artifact = artifacts.save(spec.fingerprint, spec.as_json(), weights.arrays_of(model, state), record)
    checkpoint.unlink(missing_ok=True)
    transformed.remove()
    return artifact


def gives_both(defence: Defence) -> bool:
    """Whether a defence has its transform and its reconstruction of one computation."""
    own = type(defence).transform_and_reconstruction is not Defence.transform_and_reconstruction
    variant = defence.reconstruction()
    return own and variant is not None and variant != dataclasses.asdict(defence.settings)


def learns(defence: Defence) -> bool:
    """Whether a defence learns something from the training images."""
    return type(defence).fit is not Defence.fit


def learned_state(defence: Defence, data: Split) -> dict[str, np.ndarray]:
    """What a defence learns from training images. Most learn nothing: that spares them 600 MB of floats."""
    return defence.fit(data.unit()) if learns(defence) else {}


def accuracy(logits: Callable[[np.ndarray], np.ndarray], test: Split) -> float:
    """The share of test images that these logits get right."""
    return float(np.mean(logits(test.unit()).argmax(axis=1) == test.labels))


def provenance(began: float) -> dict[str, Any]:
    """With what, and in how many seconds, something was trained."""
    return {
        "seconds": round(time.monotonic() - began),
        "bench": bench.__version__,
        "tensorflow": importlib.metadata.version("tensorflow"),
    }


def keep(
    spec: ClassifierSpec,
    model: keras.Model,
    key: int | None,
    origin: Mapping[str, str],
    check: int,
    state: Mapping[str, np.ndarray] | None = None,
) -> Artifact:
    """Keeps a classifier that was trained elsewhere, with its accuracy on the first `check` test images.

    `state` is what the defence has learned from the training images.
    """
    from bench.models.inference import classify

    began, learned = time.monotonic(), dict(state or {})
    test = spec.dataset.test.first(check)
    logits = classify(model, lambda images: spec.defence.transform(images, key, learned), spec.dataset.shape)
    record = {
        **origin,
        "clean_accuracy": accuracy(logits, test),
        "test_images": len(test),
        "seconds": round(time.monotonic() - began),
        "bench": bench.__version__,
    }
    return artifacts.save(spec.fingerprint, spec.as_json(), weights.arrays_of(model, learned), record)
