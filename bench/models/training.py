"""Training a classifier behind a defence: Nesterov SGD, augmentation before the transform, averaged weights.

Every random draw comes from (seed, epoch or step), so a run that was interrupted and resumed ends with the same
weights as one that was not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from bench.api import BenchError, UsageError
from bench.data.datasets import Split
from bench.models.augmentation import augmented
from bench.models.optimiser import MovingAverage, Nesterov
from bench.models.recipe import Recipe
from bench.models.weights import read_arrays
from bench.support.files import atomic_write


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a training is; given to the caller after every few steps."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


class Trainer:
    """A training in memory: the model, its momentum and its averaged weights, and how far it is.

    `before` makes of images (B×H×W×3, [0,1]) what the model reads, and `after` makes logits of what it gives: a
    classifier has a defence before it, a bypass a frozen classifier after it. `copies`, arrays of transformed training
    images (N×H'×W'×C), one per version, stand for `before` where there are any.
    """

    def __init__(
        self,
        model: keras.Model,
        recipe: Recipe,
        data: Split,
        classes: int,
        before: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
        after: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
        copies: Sequence[np.ndarray] = (),
    ) -> None:
        self.model, self.recipe, self.data, self.classes = model, recipe, data, classes
        self._before, self._after, self._copies = before, after, copies
        self._optimiser = Nesterov(model.trainable_variables, recipe.momentum, recipe.weight_decay)
        self._average = MovingAverage(model.weights, recipe.average)
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
        self._average.take_over()

    def _run_epoch(self, report: Callable[[Progress], None]) -> None:
        recipe, size = self.recipe, self.recipe.batch_size
        order = np.random.default_rng((recipe.seed, self.epoch)).permutation(len(self.data))
        for step in range(self.steps):
            chosen = order[step * size : (step + 1) * size]
            done = self.epoch * self.steps + step
            rate = recipe.rate(done / (recipe.epochs * self.steps))
            loss = self._step(
                tf.constant(self._inputs(chosen)),
                tf.constant(self.data.labels[chosen]),
                tf.constant(rate, tf.float32),
                tf.constant(self._average.decay_at(done), tf.float32),
                tf.constant([recipe.seed, done], tf.int32),
            )
            if step % 10 == 9 or step == self.steps - 1:
                value = float(loss)
                if not np.isfinite(value):
                    raise BenchError(f"training diverged in epoch {self.epoch + 1} (loss {value}): lower learning_rate")
                report(Progress(self.epoch, recipe.epochs, step + 1, self.steps, value))

    def _inputs(self, chosen: np.ndarray) -> np.ndarray:
        """The images of a step (B×H×W×3), or their transformed copies (B×H'×W'×C)."""
        if self._copies:
            return self._copies[self.epoch % len(self._copies)][chosen].astype(np.float32)
        return self.data.images[chosen].astype(np.float32) / np.float32(255)

    def _update(
        self, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, decay: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """One step of training on a batch; gives its loss."""
        recipe = self.recipe
        if self._copies:
            targets = tf.one_hot(labels, self.classes)
        else:
            images, targets = augmented(images, labels, recipe, self.classes, seed)
            images = tf.ensure_shape(images, (None, *self.data.images.shape[1:]))
        losses, gradients = [], []
        for part, target in zip(tf.split(images, recipe.slices), tf.split(targets, recipe.slices), strict=True):
            loss, gradient = self._slice(part, target, seed)
            losses.append(loss)
            gradients.append(gradient)
        self._optimiser.step([tf.add_n(parts) / recipe.slices for parts in zip(*gradients, strict=True)], rate)
        self._average.update(decay)
        return tf.add_n(losses) / recipe.slices

    def _slice(self, images: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss of a part of a batch, and its gradients."""

        def logits(part: tf.Tensor) -> tf.Tensor:
            return self._after(self.model(self._before(part), training=True))

        if self.recipe.adversary is not None:
            images = self.recipe.adversary.attack(logits, images, targets, seed)
        inputs = images if self._copies else tf.stop_gradient(self._before(images))
        with tf.GradientTape() as tape:
            outputs = self._after(self.model(inputs, training=True))
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, outputs))
        return loss, tape.gradient(loss, self.model.trainable_variables)

    @property
    def _state(self) -> dict[str, tf.Variable]:
        """All that changes while it trains, by the names in a checkpoint."""
        weights = {f"weight:{i}": variable for i, variable in enumerate(self.model.weights)}
        return {**weights, **self._optimiser.state, **self._average.state}

    def _save(self, path: Path) -> None:
        arrays = {name: variable.numpy() for name, variable in self._state.items()}
        with atomic_write(path) as stream:
            np.savez(stream, epoch=np.int64(self.epoch), **arrays)

    def _restore(self, path: Path) -> None:
        arrays = read_arrays(path)
        for name, variable in self._state.items():
            variable.assign(arrays[name])
        self.epoch = int(arrays["epoch"])
