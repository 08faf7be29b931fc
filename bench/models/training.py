"""Training a classifier behind a defence: Nesterov SGD, CutMix before the transform, averaged weights, exact resume.

Every random draw comes from (seed, epoch or step), so a run that was interrupted and resumed ends with the same
weights as one that was not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bench.api import BenchError, Shape, UsageError, each_image
from bench.data.datasets import Split
from bench.models.artifacts import read_arrays
from bench.support.files import atomic_write


@dataclasses.dataclass(frozen=True)
class Adversary:
    """Adversarial training's inner attack: PGD on the cross-entropy from a random start; one step of 1.25 is FGSM-RS."""

    norm: str
    epsilon: float
    steps: int = 10
    step: float = 0.25
    """In units of epsilon."""

    def __post_init__(self) -> None:
        for name, ok in {
            "norm": self.norm in ("linf", "l2"),
            "epsilon": self.epsilon > 0,
            "steps": self.steps >= 1,
            "step": self.step > 0,
        }.items():
            if not ok:
                raise UsageError(f"training: the adversary's {name} is {getattr(self, name)}, which makes no sense")

    def attack(
        self, logits: Callable[[tf.Tensor], tf.Tensor], images: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """Images (B×H×W×3) moved towards a higher loss, inside the ball and the range."""

        def moved(image: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(image)
                loss = tf.reduce_sum(tf.nn.softmax_cross_entropy_with_logits(targets, logits(image)))
            gradient = tape.gradient(loss, image)
            ahead = tf.sign(gradient) if self.norm == "linf" else gradient / (_length(gradient) + 1e-12)
            return self._inside(image + self.step * self.epsilon * ahead, images)

        drawn = tf.random.stateless_uniform(tf.shape(images), seed, -1.0, 1.0)
        if self.norm == "l2":
            drawn = drawn / _length(drawn)
        image = self._inside(images + self.epsilon * drawn, images)
        (image,) = tf.while_loop(lambda _: True, lambda x: (moved(x),), (image,), maximum_iterations=self.steps)
        return tf.stop_gradient(image)

    def _inside(self, moved: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
        change = moved - images
        if self.norm == "linf":
            change = tf.clip_by_value(change, -self.epsilon, self.epsilon)
        else:
            change *= tf.minimum(1.0, self.epsilon / (_length(change) + 1e-12))
        return tf.clip_by_value(images + change, 0.0, 1.0)


def _length(tensor: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_sum(tf.square(tensor), axis=(1, 2, 3), keepdims=True))


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that determines a classifier's weights, besides the data, the defence and the key."""

    depth: int = 70
    width: int = 16
    epochs: int = 1000
    batch_size: int = 1024
    slices: int = 1
    """A batch is cut into so many parts that go through the network side by side, each with batch statistics of its own."""
    learning_rate: float = 0.4
    schedule: str = "step"
    drops: tuple[float, ...] = (0.65, 0.8, 0.9, 0.95)
    warmup: float = 0.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    average: float = 0.995
    cutmix: bool = True
    crop_and_flip: bool = True
    seed: int = 0
    adversary: Adversary | None = None
    """For adversarial training: what is done to the images before they are learned from."""
    copies: int = 0
    """Transform so many versions of the training images once and keep them, instead of transforming at every step:
    the images, their mirror images, then random crops. For a transform that costs more than the network."""
    images: int = 0
    """Learn from the first so many training images only; 0 is all of them."""

    def __post_init__(self) -> None:
        for name, ok in {
            "epochs": self.epochs >= 1,
            "batch_size": self.batch_size >= 1,
            "learning_rate": self.learning_rate > 0,
            "slices": self.slices >= 1 and self.batch_size % self.slices == 0,
            "weight_decay": self.weight_decay >= 0,
            "schedule": self.schedule in ("step", "cosine"),
            "average": 0 <= self.average < 1,
            "momentum": 0 <= self.momentum < 1,
            "warmup": 0 <= self.warmup < 1,
            "copies": self.copies >= 0 and not (self.copies and (self.cutmix or self.adversary)),
            "images": self.images >= 0,
        }.items():
            if not ok:
                raise UsageError(
                    f"training: {name} is {getattr(self, name)}, which makes no sense; see docs/presets.md"
                )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Recipe:
        """A recipe from what JSON or TOML made of one; a field it does not have is named."""
        known = {field.name for field in dataclasses.fields(cls)}
        if odd := sorted(fields.keys() - known):
            raise UsageError(f"training has no field '{odd[0]}'; it has {', '.join(sorted(known))}")
        values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in fields.items()}
        if isinstance(values.get("adversary"), Mapping):
            values["adversary"] = Adversary(**values["adversary"])
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        """What is fingerprinted. Fields that came later are left out where they do nothing, so that old weights count."""
        fields = dataclasses.asdict(self)
        return {name: value for name, value in fields.items() if value or name not in ("adversary", "copies", "images")}

    def learnt_from(self, data: Split) -> Split:
        """What of the training images it uses."""
        return data.first(self.images) if self.images else data

    def rate(self, progress: float) -> float:
        """The learning rate when this share of the training is done."""
        if progress < self.warmup:
            return self.learning_rate * (progress / self.warmup)
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + float(np.cos(np.pi * (progress - self.warmup) / (1 - self.warmup))))
        return self.learning_rate * 0.1 ** sum(progress >= drop for drop in self.drops)


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a training is; given to the caller after every few steps."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


def augmented(
    images: tf.Tensor, labels: tf.Tensor, recipe: Recipe, classes: int, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Crops, flips and CutMix on B×H×W×3 images; labels (B) become B×classes weights."""
    size = tf.shape(images)
    batch, height, width = size[0], size[1], size[2]
    seeds = tf.random.split(seed, 6)
    if recipe.crop_and_flip:
        padded = tf.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
        offsets = tf.random.stateless_uniform((batch, 2), seeds[0], 0, 9, tf.int32)
        rows = offsets[:, :1] + tf.range(height)
        columns = offsets[:, 1:] + tf.range(width)
        images = tf.gather(tf.gather(padded, rows, batch_dims=1), columns, axis=2, batch_dims=1)
        flip = tf.random.stateless_uniform((batch, 1, 1, 1), seeds[1]) < 0.5
        images = tf.where(flip, tf.reverse(images, axis=[2]), images)
    targets = tf.one_hot(labels, classes)
    if recipe.cutmix:
        # One box an image, of an area share uniform in [0,1] (CutMix with alpha = 1), pasted from the next image.
        side = tf.sqrt(tf.random.stateless_uniform((batch, 1), seeds[2]))
        y, x = (tf.random.stateless_uniform((batch, 1), seeds[i]) for i in (3, 4))

        def inside(centre: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
            positions = tf.cast(tf.range(length), tf.float32)[None] + 0.5
            return tf.abs(positions - centre * tf.cast(length, tf.float32)) <= side * tf.cast(length, tf.float32) / 2

        box = inside(y, height)[:, :, None] & inside(x, width)[:, None, :]
        images = tf.where(box[..., None], tf.roll(images, 1, axis=0), images)
        share = tf.reduce_mean(tf.cast(box, tf.float32), axis=(1, 2))[:, None]
        targets = (1 - share) * targets + share * tf.roll(targets, 1, axis=0)
    return images, targets


class Trainer:
    """A training in memory: the model, its momentum and its averaged weights, and how far it is.

    `before` makes of images (B×H×W×3, [0,1]) what the model reads, and `after` makes logits of what it gives: a
    classifier has a defence before it, a bypass a frozen classifier after it. `kept`, one array a copy (N×H'×W'×C),
    holds transformed training images and stands for `before`.
    """

    def __init__(
        self,
        model: keras.Model,
        recipe: Recipe,
        data: Split,
        classes: int,
        before: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
        after: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
        kept: Sequence[np.ndarray] = (),
    ) -> None:
        self.model, self.recipe, self.data, self.classes = model, recipe, data, classes
        self._before, self._after, self._kept = before, after, kept
        self._momenta = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]
        self._averages = [tf.Variable(tf.convert_to_tensor(v)) for v in model.weights]
        self.epoch = 0
        self.steps = len(data) // recipe.batch_size
        if self.steps == 0:
            raise UsageError(f"training: a batch of {recipe.batch_size} is larger than the {len(data)} training images")
        self._step = tf.function(self._update, reduce_retracing=True)

    def run(self, checkpoint: Path, report: Callable[[Progress], None]) -> None:
        """Trains to the end, from the checkpoint if there is one; writes the checkpoint after every epoch."""
        if checkpoint.exists():
            self._restore(checkpoint)
        while self.epoch < self.recipe.epochs:
            self._run_epoch(report)
            self.epoch += 1
            self._save(checkpoint)
        for variable, average in zip(self.model.weights, self._averages, strict=True):
            variable.assign(average)

    def _run_epoch(self, report: Callable[[Progress], None]) -> None:
        recipe, size = self.recipe, self.recipe.batch_size
        order = np.random.default_rng((recipe.seed, self.epoch)).permutation(len(self.data))
        for step in range(self.steps):
            chosen = order[step * size : (step + 1) * size]
            done = self.epoch * self.steps + step
            rate = recipe.rate(done / (recipe.epochs * self.steps))
            average = min(recipe.average, (1 + done) / (10 + done))  # so that the first weights are soon forgotten
            loss = self._step(
                tf.constant(self._inputs(chosen)),
                tf.constant(self.data.labels[chosen]),
                tf.constant(rate, tf.float32),
                tf.constant(average, tf.float32),
                tf.constant([recipe.seed, done], tf.int32),
            )
            if step % 10 == 9 or step == self.steps - 1:
                value = float(loss)
                if not np.isfinite(value):
                    raise BenchError(f"training diverged in epoch {self.epoch + 1} (loss {value}): lower learning_rate")
                report(Progress(self.epoch, recipe.epochs, step + 1, self.steps, value))

    def _inputs(self, chosen: np.ndarray) -> np.ndarray:
        """The images of a step (B×H×W×3), or what was kept of them (B×H'×W'×C)."""
        if self._kept:
            return self._kept[self.epoch % len(self._kept)][chosen].astype(np.float32)
        return self.data.images[chosen].astype(np.float32) / np.float32(255)

    def _update(
        self, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, average: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        recipe, variables = self.recipe, self.model.trainable_variables
        if self._kept:
            targets = tf.one_hot(labels, self.classes)
        else:
            images, targets = augmented(images, labels, recipe, self.classes, seed)
            images = tf.ensure_shape(images, (None, *self.data.images.shape[1:]))
        losses, gradients = [], []
        for part, target in zip(tf.split(images, recipe.slices), tf.split(targets, recipe.slices), strict=True):
            loss, gradient = self._slice(part, target, seed)
            losses.append(loss)
            gradients.append(gradient)
        for variable, momentum, *parts in zip(variables, self._momenta, *gradients, strict=True):
            gradient = tf.add_n(parts) / recipe.slices
            if len(variable.shape) > 1:  # kernels only: neither biases nor the scales of batch normalisation
                gradient += recipe.weight_decay * tf.convert_to_tensor(variable)
            momentum.assign(recipe.momentum * momentum - rate * gradient)
            variable.assign_add(recipe.momentum * momentum - rate * gradient)
        for variable, mean in zip(self.model.weights, self._averages, strict=True):
            mean.assign(average * mean + (1 - average) * tf.convert_to_tensor(variable))
        return tf.add_n(losses) / recipe.slices

    def _slice(self, images: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss of a part of a batch, and its gradients."""

        def logits(part: tf.Tensor) -> tf.Tensor:
            return self._after(self.model(self._before(part), training=True))

        if self.recipe.adversary is not None:
            images = self.recipe.adversary.attack(logits, images, targets, seed)
        inputs = images if self._kept else tf.stop_gradient(self._before(images))
        with tf.GradientTape() as tape:
            outputs = self._after(self.model(inputs, training=True))
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, outputs))
        return loss, tape.gradient(loss, self.model.trainable_variables)

    def _save(self, path: Path) -> None:
        arrays = {f"weight:{i}": v.numpy() for i, v in enumerate(self.model.weights)}
        arrays |= {f"momentum:{i}": v.numpy() for i, v in enumerate(self._momenta)}
        arrays |= {f"average:{i}": v.numpy() for i, v in enumerate(self._averages)}
        with atomic_write(path) as stream:
            np.savez(stream, epoch=np.int64(self.epoch), **arrays)

    def _restore(self, path: Path) -> None:
        arrays = read_arrays(path)
        self.model.set_weights([arrays[f"weight:{i}"] for i in range(len(self.model.weights))])
        for i, variable in enumerate(self._momenta):
            variable.assign(arrays[f"momentum:{i}"])
        for i, variable in enumerate(self._averages):
            variable.assign(arrays[f"average:{i}"])
        self.epoch = int(arrays["epoch"])


def classify(
    model: Callable[..., tf.Tensor], transform: Callable[[tf.Tensor], tf.Tensor], shape: Shape
) -> Callable[[np.ndarray], np.ndarray]:
    """A compiled function from images (N×H×W×3, [0,1]) to logits (N×classes); an image's logits depend on it alone."""

    def one(image: tf.Tensor) -> tf.Tensor:
        return model(transform(image), training=False)

    compiled = tf.function(
        lambda images: each_image(one, images, signature=tf.float32),
        input_signature=[tf.TensorSpec((None, *shape), tf.float32)],
    )

    def logits(images: np.ndarray) -> np.ndarray:
        parts = [compiled(tf.constant(images[i : i + 256])).numpy() for i in range(0, len(images), 256)]
        return np.concatenate(parts)

    return logits
