"""Gradient descent made to carry over to other models: momentum, input diversity and translations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from attacks.parts import descent, draws, losses
from attacks.parts.compiling import compiled
from attacks.parts.engine import BatchEngine, Fixed, Schedule, Task, Trial, drive, positive, restarts, settle
from attacks.parts.observed import Observed, observe
from attacks.parts.sums import image_sum, spread
from bench.api import Ball, Source, UsageError, each_image


@dataclasses.dataclass(frozen=True)
class BoostedSettings:
    """Which boosters, and how strong; 0 turns one off."""

    steps: int = 50
    restarts: int = 1
    step_size: float = 0.1
    """In units of epsilon."""
    momentum: float = 1.0
    """How much of the past gradients, each over its L1 length, is kept."""
    diversity: float = 0.5
    """The probability that the model sees an image shrunk by up to an eighth and shifted, at each step."""
    translation: int = 2
    """The gradient is smoothed by a Gaussian of this radius, as if the model were attacked at all small shifts."""

    def __post_init__(self) -> None:
        positive(self, steps=1, restarts=1, step_size=0, momentum=0, translation=0)
        if not 0 <= self.diversity <= 1:
            raise UsageError(f"diversity is {self.diversity}: give a probability from 0 to 1")


class Boosted(BatchEngine):
    """Transfer boosters (ours): sign or L2 steps with momentum, input diversity and translation smoothing."""

    Settings = BoostedSettings
    meaning = "gradient steps made to carry over to other models: momentum, varied and shifted inputs"
    in_all = False
    beyond = True

    def work(self, examples: int) -> int:
        return examples * self.settings.restarts * self.settings.steps

    def attack(self, task: Task) -> None:
        for trial in task.trials(restarts(self.settings.restarts)):
            self._descend(task, trial)

    def _descend(self, task: Task, trial: Trial) -> None:
        settings, source, ball = self.settings, task.source, task.ball
        key = ("boosted", dataclasses.astuple(settings), ball.name)
        steps = boosted_steps(source, ball, settings)

        def start(origin: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> Boosting:
            images = ball.random_start(origin, seeds, epsilon)
            begun = descent.begin(descent.steepest(ball), images)
            return Boosting(images, tf.zeros_like(images), seeds, begun.best, begun.observed)

        def block(state: Boosting, fixed: Fixed, first: int, last: int) -> Boosting:
            return compiled(source, key, steps, state, fixed, task.epsilon, first, last)

        fixed, restart = task.fixed(trial.rows), trial.restart
        state = compiled(source, (*key, "start"), start, fixed.origin, trial.seeds, task.epsilon)
        schedule = Schedule(settings.steps, restart, trial.progress)
        state, fixed, rows = drive(task, block, state, fixed, trial.rows, schedule)
        if len(rows):
            best = compiled(source, "finish", descent.finish(source), state.best, state.images, fixed.labels)
            task.ledger.spend(rows, queries=1)
            settle(task, state._replace(best=best), rows, restart, fixed.targets.numpy())


class Boosting(NamedTuple):
    """Where a boosted descent stands."""

    images: tf.Tensor  # B×H×W×C
    velocity: tf.Tensor  # B×H×W×C
    seeds: tf.Tensor  # B×2
    best: descent.Best
    observed: Observed


def boosted_steps(source: Source, ball: Ball, settings: BoostedSettings) -> Callable[..., Boosting]:
    """A function (state, fixed, epsilon, first, last) that does the steps first..last−1. Only the end is judged."""

    def block(state: Boosting, fixed: Fixed, epsilon: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> Boosting:
        def one(step: tf.Tensor, state: Boosting) -> tuple[tf.Tensor, Boosting]:
            with tf.GradientTape() as tape:
                tape.watch(state.images)
                seen = diverse(state.images, state.seeds, step, settings.diversity)
            found = source.gradient(descent.untargeted(losses.margin), seen, fixed.labels, fixed.targets)
            margin = losses.margin(found.logits, fixed.labels)
            observed, gradient = observe(state.observed, found, margin)
            gradient = tape.gradient(seen, state.images, output_gradients=gradient)
            gradient = smooth(tf.ensure_shape(gradient, state.images.shape), settings.translation)
            scale = image_sum(tf.abs(gradient))
            velocity = settings.momentum * state.velocity + gradient / spread(tf.maximum(scale, 1e-12))
            moved = state.images - settings.step_size * epsilon * ball.steepest(velocity)
            images = ball.project(moved, fixed.origin, epsilon)
            return step + 1, Boosting(images, velocity, state.seeds, state.best, observed)

        return tf.while_loop(lambda step, _: step < last, one, (first, state))[1]

    return block


def diverse(images: tf.Tensor, seeds: tf.Tensor, step: tf.Tensor, probability: float) -> tf.Tensor:
    """Each image, with this probability, shrunk by up to an eighth and put somewhere in a black frame: B×H×W×C."""

    def draw(seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([4], tf.random.fold_in(seed, step), alg="philox")

    chance, size, right, down = tf.unstack(draws.each_seed(draw, seeds), axis=1)
    zoom = tf.where(chance < probability, 1 / (1 - size / 8), 1.0)  # output to input coordinates
    height, width = float(images.shape[1]), float(images.shape[2])
    zero = tf.zeros_like(zoom)
    transforms = tf.stack(
        [zoom, zero, (1 - zoom) * right * width, zero, zoom, (1 - zoom) * down * height, zero, zero], axis=1
    )
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images, transforms=transforms, output_shape=list(images.shape[1:3]), fill_value=0.0,
        interpolation="BILINEAR", fill_mode="CONSTANT",
    )  # fmt: skip


def smooth(gradient: tf.Tensor, radius: int) -> tf.Tensor:
    """The gradient (B×H×W×C) under a Gaussian of width radius/2, cut off at the radius."""
    if radius == 0:
        return gradient
    line = np.exp(-0.5 * (np.arange(-radius, radius + 1) / (radius / 2)) ** 2)
    kernel = (np.outer(line, line) / line.sum() ** 2).astype(np.float32)
    filters = np.repeat(kernel[:, :, None, None], gradient.shape[3], axis=2)

    def one(part: tf.Tensor) -> tf.Tensor:
        return tf.nn.depthwise_conv2d(part, filters, (1, 1, 1, 1), "SAME")

    return each_image(one, gradient, signature=tf.TensorSpec(gradient.shape[1:], tf.float32))
