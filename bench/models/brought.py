"""Classifiers that were made elsewhere: read, checked to be what attacks can be judged on, and kept as artifacts.

One is a registered network with weights, like those trained here: `keras` for a .keras file or a Keras model in memory,
`torch` for a PyTorch factory with a weights file. Nothing behind this module knows where it came from.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bench import in_memory, registry
from bench.api import Defence, Shape, UsageError, attacker_key
from bench.data.datasets import Dataset
from bench.models import catalogue, torch_in_memory, weights
from bench.models.architecture import Architecture
from bench.models.catalogue import ClassifierSpec
from bench.models.outputs import Output
from bench.support.fingerprint import canonical, fingerprint, of_file

if TYPE_CHECKING:
    import keras

TORCH = "torch:"
KERAS = ".keras"
CHECKED = 8  # test images that a classifier is tried on
MEASURED = 1000  # test images that its accuracy is measured on when it is kept
_CHANGED = 1e-3
"""How far two answers to one image may be apart, in units of the largest logit: rounding is far below it."""


@dataclasses.dataclass(frozen=True)
class Given:
    """A classifier as its owner gives it."""

    model: Any
    """'FILE.keras', 'torch:package.module:factory' (with '@FILE' for its weights), or a model of Keras or PyTorch in
    memory."""
    weights: Path | None = None
    """Of a PyTorch classifier, if they are not named with it."""
    probabilities: bool = False
    """Whether it gives probabilities, and not logits."""
    option: str = "--classifier"
    """What messages call it by."""

    def __str__(self) -> str:
        return f"{self.option} {self.model if isinstance(self.model, str) else type(self.model).__name__}"

    @property
    def output(self) -> Output:
        return "probabilities" if self.probabilities else "logits"

    @property
    def name(self) -> str:
        """A short name: of the file with the weights, or of the model."""
        if not isinstance(self.model, str):
            return type(self.model).__name__
        if self.model.startswith(TORCH):
            factory, file = self.torch_parts()
            return file.stem if file else registry.parse(factory)[0].rpartition(":")[2]
        return registry.parse(self.model)[0] if self.is_network else Path(self.model).stem

    @property
    def is_network(self) -> bool:
        """Whether it names a registered network, which is trained here, and no model that is there already."""
        return isinstance(self.model, str) and not self.model.startswith(TORCH) and not self.model.endswith(KERAS)

    def resolved(self) -> Given:
        """The same with the whole paths of its files, for processes in other folders."""
        if not isinstance(self.model, str) or self.is_network:
            return self
        if not self.model.startswith(TORCH):
            return dataclasses.replace(self, model=str(Path(self.model).resolve()))
        factory, file = self.torch_parts()
        return dataclasses.replace(self, model=TORCH + factory, weights=file.resolve() if file else None)

    def require_file(self) -> None:
        """Raises UsageError if a file that it names is not there."""
        if not isinstance(self.model, str) or self.is_network:
            return
        file = self.torch_parts()[1] if self.model.startswith(TORCH) else Path(self.model)
        if file is not None and not file.exists():
            raise UsageError(f"{self.option} {file} does not exist")

    def torch_parts(self) -> tuple[str, Path | None]:
        """The factory, with settings if it has any, and the weights of 'torch:package.module:factory@FILE'."""
        factory, at, file = self.model.removeprefix(TORCH).partition("@")
        if at and self.weights is not None:
            raise UsageError(f"{self}: its weights are given twice, by @{file} and by --weights {self.weights}")
        return factory, Path(file) if at else self.weights


@dataclasses.dataclass(frozen=True)
class Brought:
    """A classifier from elsewhere, in memory: what it is, the model with its weights, and where it came from."""

    network: Architecture
    model: keras.Model
    origin: Mapping[str, str]

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Its weights by name."""
        return weights.arrays_of(self.model, {})

    @property
    def digest(self) -> str:
        """Of the network and all its weights: what tells it from every other classifier."""
        digest = hashlib.sha256(canonical(self.network.as_json()).encode())
        for name, values in sorted(self.weights.items()):
            digest.update(f"{name}{values.dtype}{values.shape}".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


def read(given: Given, shape: Shape, classes: int) -> Brought:
    """The classifier, which reads inputs of this shape; what is wrong with it is one clear line."""
    try:
        if not isinstance(given.model, str):
            return _in_memory(given, shape, classes)
        if given.model.startswith(TORCH):
            return _torch(given, shape, classes)
        if given.model.endswith(KERAS):
            return _keras_file(given, shape, classes)
    except UsageError as error:
        text = str(error)
        raise (error if text.startswith(str(given)) else UsageError(f"{given}: {text}")) from None
    raise UsageError(f"{given}: give a file that ends in {KERAS}, or {TORCH}package.module:factory")


def _keras_file(given: Given, shape: Shape, classes: int) -> Brought:
    from bench.models import keras_network

    path = Path(given.model)
    if given.weights is not None:
        raise UsageError(f"--weights {given.weights} is for {TORCH}…: a {KERAS} file has its own")
    model = keras_network.read_file(path)
    return _of_keras(model, given, shape, classes, {"brought_from": path.name, "brought_sha256": of_file(path)})


def _of_keras(model: keras.Model, given: Given, shape: Shape, classes: int, origin: Mapping[str, str]) -> Brought:
    from bench.models import keras_network

    network = Architecture.named(keras_network.NAME, keras_network.settings_of(model, given.output))
    built = network.build(shape, classes)
    built.set_weights(model.get_weights())
    return Brought(network, built, origin)


def _torch(given: Given, shape: Shape, classes: int) -> Brought:
    factory, file = given.torch_parts()
    if file is None:
        raise UsageError("its weights are missing: give --weights FILE.safetensors, or add @FILE.safetensors to it")
    from bench.models import torch_network

    name, settings = registry.parse(factory)
    network = Architecture.named("torch", {**settings, "factory": name, "output": given.output})
    model = network.build(shape, classes)
    torch_network.put_state(model, torch_network.read_weights(file), file)
    return Brought(network, model, {"brought_from": given.model, "brought_sha256": of_file(file)})


def _in_memory(given: Given, shape: Shape, classes: int) -> Brought:
    import keras

    if isinstance(given.model, keras.Model):
        return _of_keras(given.model, given, shape, classes, {"brought_from": "a model in memory"})
    if torch_in_memory.is_module(given.model):
        return _of_torch(given, shape, classes)
    raise UsageError(
        "it is no Keras model or torch.nn.Module, nor the text 'FILE.keras' or 'torch:package.module:factory'"
    )


def _of_torch(given: Given, shape: Shape, classes: int) -> Brought:
    """A module in memory, which is installed there (`bench.in_memory`); it reads channels first, or else last."""
    from bench.models import torch_network
    from bench.models.torch_weights import as_float32

    if given.weights is not None:
        raise UsageError(f"--weights {given.weights} is for {TORCH}…: a module in memory has its own")
    name = torch_in_memory.name_of(given.model)
    settings = {"factory": f"{in_memory.MEMORY}:{name}", "output": given.output}
    try:
        network = Architecture.named("torch", settings)
        model = network.build(shape, classes)
    except UsageError as error:
        network = Architecture.named("torch", {**settings, "channels": "last"})
        try:
            model = network.build(shape, classes)
        except UsageError:
            raise error from None
    state = {key: as_float32(value, name, key) for key, value in given.model.state_dict().items()}
    torch_network.put_state(model, state, Path(name))
    return Brought(network, model, {"brought_from": "a module in memory"})


def check(brought: Brought, given: Given, images: np.ndarray) -> None:
    """Refuses a classifier whose answers on some inputs (N×H×W×C) are no logits, random, or depend on other inputs."""

    def answers(inputs: np.ndarray) -> np.ndarray:
        return np.asarray(brought.model(inputs, training=False))

    def refuse(what: str) -> NoReturn:
        raise UsageError(f"{given}: {what}")

    logits = answers(images)
    if not np.isfinite(logits).all():
        refuse("it gives NaN or infinite logits on a test image: look at its weights")
    limit = _CHANGED * max(1.0, float(np.abs(logits).max()))
    if np.abs(logits - answers(images)).max() > limit:
        refuse("it answers the same image differently each time: it has randomness in it; switch that off")
    alone = np.concatenate([answers(image[None]) for image in images])
    if np.abs(logits - alone).max() > limit:
        refuse("an image's logits depend on the others of its batch: is a normalisation in training mode?")
    values = np.exp(logits) if given.probabilities else logits
    sums_to_one = bool((values >= 0).all() and np.abs(values.sum(axis=1) - 1).max() < _CHANGED)
    if sums_to_one and not given.probabilities:
        refuse(
            "its outputs are probabilities (none is negative, and they sum to 1), and attacks need logits: "
            "leave its last softmax out, or say --probabilities"
        )
    if given.probabilities and not sums_to_one:
        refuse("its outputs are no probabilities, which do not sum to anything but 1: leave --probabilities out")


def for_defence(given: Given, dataset: Dataset, defence: Defence) -> Brought:
    """A checked classifier that reads what the defence gives. It is tried under an attacker's key: this needs no other."""
    given.require_file()
    brought = read(given, defence.output_shape(dataset.shape), len(dataset.classes))
    images = dataset.test.first(CHECKED).unit()
    if not catalogue.learns(defence):  # what a defence learns is learned when the classifier is kept
        images = np.asarray(defence.transform(images, attacker_key(1) if defence.keyed else None, {}))
        check(brought, given, images)
    return brought


def for_images(given: Given, dataset: Dataset) -> Brought:
    """A checked classifier of the dataset's images as they are."""
    brought = read(given, dataset.shape, len(dataset.classes))
    check(brought, given, dataset.test.first(CHECKED).unit())
    return brought


def spec_of(wanted: ClassifierSpec, brought: Brought) -> ClassifierSpec:
    """What determines a brought classifier, in place of what a run would train."""
    recipe = dataclasses.replace(wanted.recipe, network=brought.network)
    return dataclasses.replace(wanted, recipe=recipe, start=None, brought=brought.digest)


def source_identity(given: Given) -> dict[str, Any]:
    """What tells a source that the user gave from any other: the network, or the digest of the file with its weights."""
    if given.is_network:
        return {"network": Architecture.read(given.model).as_json()}
    if not given.model.startswith(TORCH):
        return {"model_sha256": of_file(Path(given.model))}
    factory, file = given.torch_parts()
    return {"model_sha256": of_file(file) if file else fingerprint(factory), "factory": factory}
