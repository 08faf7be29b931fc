"""Training a classifier behind a defence: Nesterov SGD, augmentation before the transform, averaged weights.

Every random draw comes from (seed, epoch or step), so a run that was interrupted and resumed ends with the same
weights as one that was not. Operations have a thread each (`devices.configure`) and what goes on side by side is the
slices of a batch, which the recipe counts: so no sum depends on the number of cores, with oneDNN's kernels neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from bench.api import BenchError, UsageError
from bench.data.datasets import Split
from bench.models import augmentation, precision, statistics
from bench.models.optimiser import Average, Lookahead, MovingAverage, Nesterov
from bench.models.recipe import Recipe
from bench.models.weights import read_arrays
from bench.support.files import atomic_write
from bench.support.prefetch import prefetched

CHOSEN_FOR_STATISTICS = 2  # beside the seed, of the images that batch statistics are taken from in the end


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a training is; given to the caller after every few steps."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


@dataclasses.dataclass(frozen=True)
class TrainingBatch:
    """What a step learns from."""

    inputs: np.ndarray  # B×H×W×3 in [0,1], or their copies: B×H'×W'×C, as they are kept
    labels: np.ndarray  # B
    flips: np.ndarray  # B, bool: which to mirror, if that is not drawn


class Trainer:
    """A training in memory: the model, its momentum and its averaged weights, and how far it is.

    `before` makes of images (B×H×W×3, [0,1]) what the model reads, and `after` makes logits of what it gives: a
    classifier has a defence before it, a bypass a frozen classifier after it. `copies`, arrays of transformed training
    images (N×H'×W'×C), one per version, stand for the images where there are any, and `before` then only decodes them.
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
        self.epoch = 0
        self.steps = len(data) // recipe.batch_size
        if self.steps == 0:
            raise UsageError(f"training: a batch of {recipe.batch_size} is larger than the {len(data)} training images")
        self._optimiser = Nesterov(model.trainable_variables, recipe)
        self._average = self._averaging()
        self._front, self._rest = self._parts()
        self._step = tf.function(self._update, reduce_retracing=True)

    def _averaging(self) -> Average:
        recipe = self.recipe
        if recipe.lookahead:
            return Lookahead(self.model, recipe.average, recipe.lookahead, recipe.epochs * self.steps)
        return MovingAverage(self.model, recipe.average)

    def _parts(self) -> tuple[Callable[..., tf.Tensor], Callable[..., tf.Tensor]]:
        """What comes before what is augmented in the model, and what comes behind it."""
        if self.recipe.augment == "image":
            return lambda inputs, training: inputs, self.model
        picture = self.model.get_layer(self.recipe.network.picture_layer()).output
        return keras.Model(self.model.input, picture), keras.Model(picture, self.model.output)

    def run(self, checkpoint: Path, report: Callable[[Progress], None]) -> None:
        """Trains to the end, from the checkpoint if there is one; writes the checkpoint after every epoch."""
        if checkpoint.exists():
            self._restore(checkpoint)
        with self._precision():
            while self.epoch < self.recipe.epochs:
                self._run_epoch(report)
                self.epoch += 1
                self._save(checkpoint)
        self._average.take_over()
        if self.recipe.statistics:
            statistics.retake(self.model, self._plain_forward, self._plain_batches())

    @property
    def in_bfloat16(self) -> bool:
        """Whether its convolutions are computed in bfloat16."""
        return self.recipe.bfloat16 and precision.has_bfloat16()

    def _precision(self) -> contextlib.AbstractContextManager[None]:
        return precision.bfloat16_convolutions(self.model) if self.in_bfloat16 else contextlib.nullcontext()

    def _run_epoch(self, report: Callable[[Progress], None]) -> None:
        recipe = self.recipe
        with contextlib.closing(prefetched(self._batches())) as batches:
            for step, batch in enumerate(batches):
                done = self.epoch * self.steps + step
                loss = self._step(
                    tf.constant(batch.inputs),
                    tf.constant(batch.labels),
                    tf.constant(batch.flips),
                    tf.constant(recipe.rate(done / (recipe.epochs * self.steps)), tf.float32),
                    tf.constant(self._average.decay_at(done), tf.float32),
                    tf.constant([recipe.seed, done], tf.int32),
                )
                if step % 10 == 9 or step == self.steps - 1:
                    value = float(loss)
                    if not np.isfinite(value):
                        raise BenchError(
                            f"training diverged in epoch {self.epoch + 1} (loss {value}): lower learning_rate"
                        )
                    report(Progress(self.epoch, recipe.epochs, step + 1, self.steps, value))

    def _batches(self) -> Iterator[TrainingBatch]:
        """The batches of this epoch."""
        recipe, size, count = self.recipe, self.recipe.batch_size, len(self.data)
        order = np.random.default_rng((recipe.seed, self.epoch)).permutation(count)
        flips = augmentation.alternating(count, recipe.seed, self.epoch)
        for step in range(self.steps):
            chosen = order[step * size : (step + 1) * size]
            yield TrainingBatch(self._inputs(chosen, self.epoch), self.data.labels[chosen], flips[chosen])

    def _inputs(self, chosen: np.ndarray, epoch: int) -> np.ndarray:
        """The images of a step (B×H×W×3), or their copies of an epoch (B×H'×W'×C)."""
        if self._copies:
            return self._copies[epoch % len(self._copies)][chosen]
        return self.data.images[chosen].astype(np.float32) / np.float32(255)

    def _update(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        flips: tf.Tensor,
        rate: tf.Tensor,
        decay: tf.Tensor,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """One step of training on a batch; gives its loss."""
        recipe = self.recipe
        if self._copies or recipe.augment != "image":
            targets = augmentation.weights_of(labels, recipe, self.classes)
        else:
            images, targets = self._augmented(images, labels, flips, seed)
            images = tf.ensure_shape(images, (None, *self.data.images.shape[1:]))
        losses, gradients = [], []
        parts = zip(*(tf.split(tensor, recipe.slices) for tensor in (images, labels, flips, targets)), strict=True)
        for place, (image, label, flip, target) in enumerate(parts):
            loss, gradient = self._slice(image, label, flip, target, seed, place)
            losses.append(loss)
            gradients.append(gradient)
        self._optimiser.step([tf.add_n(parts) / recipe.slices for parts in zip(*gradients, strict=True)], rate)
        self._average.update(decay)
        return tf.add_n(losses) / recipe.slices

    def _augmented(
        self, images: tf.Tensor, labels: tf.Tensor, flips: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        given = flips if self.recipe.flips == "alternating" else None
        return augmentation.augmented(images, labels, self.recipe, self.classes, seed, given)

    def _slice(
        self, images: tf.Tensor, labels: tf.Tensor, flips: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor, place: int
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss of a part of a batch, and its gradients."""

        def logits(part: tf.Tensor) -> tf.Tensor:
            return self._after(self.model(self._before(part), training=True))

        if self.recipe.adversary is not None:
            images = self.recipe.adversary.attack(logits, images, targets, seed)
        inputs = tf.stop_gradient(self._before(images))
        with tf.GradientTape() as tape:
            features = self._front(inputs, training=True)
            if self.recipe.augment == "picture":
                own_seed = tf.random.experimental.stateless_fold_in(seed, place)
                features, targets = self._augmented(tf.cast(features, tf.float32), labels, flips, own_seed)
            outputs = self._after(self._rest(features, training=True))
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, outputs))
        return loss, tape.gradient(loss, self.model.trainable_variables)

    def _plain_forward(self, images: tf.Tensor) -> tf.Tensor:
        return self.model(self._before(images), training=True)

    def _plain_batches(self) -> Iterator[np.ndarray]:
        """So many batches of training images as the recipe takes batch statistics from, neither shifted nor flipped."""
        recipe, size = self.recipe, self.recipe.batch_size
        order = np.random.default_rng((recipe.seed, 0, CHOSEN_FOR_STATISTICS)).permutation(len(self.data))
        for step in range(min(recipe.statistics, self.steps)):
            yield self._inputs(order[step * size : (step + 1) * size], 0)

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
