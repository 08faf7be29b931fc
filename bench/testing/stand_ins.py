"""What plug-ins are checked with: images, small models, sources that count, defences, a workshop that trains nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bench import registry
from bench.api import Defence, Gradient, Loss, ModelSource, Shape, TrainedClassifier, Workshop


def some_images(shape: Shape, count: int, seed: int = 0) -> np.ndarray:
    """Images (count×shape, float32, of eight bits) with large and small structures, between 0.2 and 0.8."""
    generator = np.random.default_rng(seed)
    coarse = generator.uniform(size=(count, -(-shape[0] // 4), -(-shape[1] // 4), shape[2]))
    smooth = coarse.repeat(4, axis=1).repeat(4, axis=2)[:, : shape[0], : shape[1]]
    images = 0.2 + 0.5 * smooth + 0.1 * generator.uniform(size=(count, *shape))
    return (np.round(255 * images) / 255).astype(np.float32)


def small_classifier(shape: Shape, classes: int, seed: int = 0) -> keras.Model:
    """A small convolutional network with random weights, the same for the same seed."""
    layers = keras.layers
    model = keras.Sequential([
        keras.Input(shape),
        layers.Conv2D(6, 3, 2, padding="same", activation="swish", name="convolution"),
        layers.Flatten(name="flat"),
        layers.Dense(classes, name="logits"),
    ])  # fmt: skip
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        inputs = max(int(np.prod(weight.shape[:-1])), 1)
        weight.assign(2 * generator.normal(size=weight.shape) / np.sqrt(inputs))
    return model


class WatchedSource(ModelSource):
    """A source that counts, image by image, what is asked of it; inside compiled code too."""

    def __init__(self, name: str, forward: Callable[[tf.Tensor], tf.Tensor], **options: bool) -> None:
        super().__init__(name, forward, **options)
        self.gradient_count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.query_count = tf.Variable(0, dtype=tf.int64, trainable=False)

    def reset(self) -> None:
        self.gradient_count.assign(0)
        self.query_count.assign(0)

    def logits(self, images: tf.Tensor) -> tf.Tensor:
        self.query_count.assign_add(tf.shape(images, out_type=tf.int64)[0])
        return super().logits(images)

    def gradient(self, loss: Loss, images: tf.Tensor, *labels: tf.Tensor) -> Gradient:
        self.gradient_count.assign_add(tf.shape(images, out_type=tf.int64)[0])
        return super().gradient(loss, images, *labels)


class LinearModel:
    """z = images · weights + offset: how far an image is from the nearest other class is known."""

    def __init__(self, shape: Shape, classes: int) -> None:
        generator = np.random.default_rng(5)
        # Of large structures, which an attack that smooths its gradients finds too.
        coarse = generator.normal(size=(classes, -(-shape[0] // 4), -(-shape[1] // 4), shape[2]))
        smooth = coarse.repeat(4, axis=1).repeat(4, axis=2)[:, : shape[0], : shape[1]]
        self.weights = smooth.reshape(classes, -1).T.astype(np.float32)
        self.offset = -0.5 * self.weights.sum(axis=0)  # a grey image is on all boundaries at once

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        return tf.reshape(images, [-1, self.weights.shape[0]]) @ self.weights + self.offset

    def radius(self, images: np.ndarray, order: float) -> np.ndarray:
        """The smallest distance (N), in the norm of this order, at which each image is on a boundary of its class."""
        dual = {1.0: np.inf, np.inf: 1.0}.get(order) or order / (order - 1)
        logits = images.reshape(len(images), -1).astype(float) @ self.weights + self.offset
        label = logits.argmax(axis=1)
        own = np.take_along_axis(logits, label[:, None], axis=1)
        slopes = self.weights.T[label][:, None] - self.weights.T[None]  # N×classes×values
        lengths = np.linalg.norm(slopes.astype(float), ord=dual, axis=2)
        ways = np.where(lengths > 0, (own - logits) / np.where(lengths > 0, lengths, 1), np.inf)
        nearest: np.ndarray = ways.min(axis=1)
        return nearest


@dataclasses.dataclass(frozen=True)
class KeyedStandInSettings:
    reconstructs: bool = False


class KeyedStandIn(Defence):
    """Turns a keyed half of the image's values into their negative."""

    Settings = KeyedStandInSettings
    keyed = True

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        if key is None:
            raise ValueError("there is no key")
        random = np.random.RandomState([key % 2**64 >> 32, key % 2**32])
        signs = random.choice([-1.0, 1.0], size=images.shape[1:]).astype(np.float32)
        return images if self.settings.reconstructs else signs * (2 * images - 1)

    def reconstruction(self) -> Mapping[str, Any]:
        return {"reconstructs": True}


class KeylessStandIn(Defence):
    """Stretches the image's values; anybody can compute it."""

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        return 2 * images - 1


class QuantisedStandIn(Defence):
    """Rounds the image's values to sixteen levels; the identity backward."""

    gradient = "bpda"

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        return images + tf.stop_gradient(tf.round(15 * images) / 15 - images)


class StandInWorkshop(Workshop):
    """Gives models with random weights in place of trained ones."""

    def __init__(self, defence: Defence, shape: Shape, classes: int) -> None:
        self.defence, self.shape, self.classes = defence, shape, classes

    @property
    def defence_name(self) -> str:
        """What the defended model's defence is called here."""
        return type(self.defence).__name__

    def classifier(
        self, defence: str, settings: Mapping[str, Any], key: int | None = None, role: str = ""
    ) -> TrainedClassifier:
        kind = type(self.defence)
        if defence == self.defence_name:
            plugin = kind(registry.settings_of(kind, defence, settings))
        else:
            plugin = registry.defence(defence, settings)
        state = plugin.fit(some_images(self.shape, 40))
        model = small_classifier(plugin.output_shape(self.shape), self.classes, seed=sum(role.encode()))
        return TrainedClassifier(plugin, state, model, "0" * 64, key)

    def front(
        self,
        role: str,
        model: keras.Model,
        after: Callable[[tf.Tensor], tf.Tensor],
        before: Callable[[tf.Tensor], tf.Tensor] | None = None,
        made_of: Mapping[str, Any] | None = None,
    ) -> None:
        images = tf.constant(some_images(self.shape, 2))
        after(model(images if before is None else before(images)))

    def user_model(self, name: str) -> keras.Model:
        return small_classifier(self.shape, self.classes, seed=1)
