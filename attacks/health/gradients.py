"""What a source's gradients say of it: zero, not finite, or not how the loss changes.

The loss is the margin, which attacks bring down. It is looked at on the image and on a random point of its ball, and a
gradient counts as wrong, or the loss as unstable, where both say so: a single kink of an honest network does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from attacks.health.examples import counted
from attacks.parts import draws, losses
from attacks.parts.compiling import compiled
from bench.api import Ball, Batch, Finding, Source, flags

STEP = 1 / 16
"""Of epsilon: the length of the finite differences, about an attack's own later steps."""
WRONG = 0.5
"""By which share a predicted change of the loss may be off."""
TINY_CHANGE = 1 / 64
"""Of epsilon: the length of the random changes under which the loss should hardly move."""
ALLOWED = 2.0
"""How many times the steepest change of that length a random one may move the loss by."""
DRAWS = 4
MOVES = 1e-5
"""Of the margin: a change below is rounding."""


class Slope(NamedTuple):
    """The margin at some points, its gradient, and how it changes around them: n each."""

    gradient: np.ndarray  # n×H×W×C
    margin: np.ndarray
    predicted: np.ndarray  # the change over a step forth and back along the steepest direction, by the gradient
    measured: np.ndarray  # the same change, as the source answers
    random: np.ndarray  # DRAWS×n: by how much tiny random changes move it
    allowed: np.ndarray  # by how much they may

    @property
    def zero(self) -> np.ndarray:
        return (np.abs(self.gradient).max(axis=(1, 2, 3)) == 0) & (self.margin >= 0)

    @property
    def non_finite(self) -> np.ndarray:
        return ~np.isfinite(self.gradient).all(axis=(1, 2, 3))

    @property
    def wrong(self) -> np.ndarray:
        """Where the gradient is there, and does not predict the change."""
        off = np.abs(self.measured - self.predicted) > WRONG * np.abs(self.predicted) + MOVES * np.abs(self.margin)
        return off & ~self.zero & ~self.non_finite

    @property
    def unstable(self) -> np.ndarray:
        """Where most of the random changes move the loss more than they may."""
        moved = self.random > self.allowed + MOVES * np.abs(self.margin)
        return (2 * moved.sum(axis=0) > DRAWS) & ~self.zero & ~self.non_finite


def findings(source: Source, batch: Batch) -> dict[str, Finding]:
    """What the gradients at the images, and at random points around them, show."""
    start = draws.fold(batch.seeds, 0)
    away = compiled(source, ("health", "start", batch.norm), batch.ball.random_start, batch.images, start, _size(batch))
    slopes = [slope(source, batch, points) for points in (batch.images, away.numpy())]
    return {
        flags.ZERO_GRADIENT: counted(np.logical_or(*(one.zero for one in slopes))),
        flags.NON_FINITE_GRADIENT: counted(np.logical_or(*(one.non_finite for one in slopes))),
        flags.WRONG_GRADIENT: counted(np.logical_and(*(one.wrong for one in slopes))),
        flags.UNSTABLE_LOSS: counted(np.logical_and(*(one.unstable for one in slopes))),
    }


def at_the_end(source: Source, batch: Batch, end: np.ndarray, before: Mapping[str, Finding]) -> dict[str, Finding]:
    """The same counts of zero and non-finite gradients, or those where a descent has ended (N×H×W×C), if they are more."""
    there = slope(source, batch, end)
    found = {flags.ZERO_GRADIENT: counted(there.zero), flags.NON_FINITE_GRADIENT: counted(there.non_finite)}
    return {name: max(finding, before[name]) for name, finding in found.items()}


def slope(source: Source, batch: Batch, points: np.ndarray) -> Slope:
    """What the margin does around points (n×H×W×C) of the examples' balls."""
    ball = batch.ball

    def looked_at(images: tf.Tensor, labels: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tuple[tf.Tensor, ...]:
        found = source.gradient(losses.margin, images, labels)
        gradient = tf.where(tf.math.is_finite(found.gradient), found.gradient, 0.0)
        step = _inside(images, STEP * epsilon * ball.steepest(gradient))
        measured = _margin(source, images + step, labels) - _margin(source, images - step, labels)
        tiny = TINY_CHANGE * epsilon
        moved = tf.stack([
            tf.abs(_margin(source, images + _inside(images, tiny * _drawn(ball, seeds + i, images)), labels) - found.loss)
            for i in range(DRAWS)
        ])  # fmt: skip
        allowed = ALLOWED * tf.reduce_sum(gradient * tiny * ball.steepest(gradient), axis=[1, 2, 3])
        predicted = 2 * tf.reduce_sum(gradient * step, axis=[1, 2, 3])
        return found.gradient, found.loss, predicted, measured, tf.transpose(moved), allowed

    gradient, margin, predicted, measured, random, allowed = compiled(
        source,
        ("health", "slope", ball.name),
        looked_at,
        points,
        batch.labels,
        draws.fold(batch.seeds, 1),
        _size(batch),
    )
    return Slope(*(tensor.numpy() for tensor in (gradient, margin, predicted, measured, tf.transpose(random), allowed)))


def _size(batch: Batch) -> np.float32:
    return np.float32(batch.epsilon)


def _margin(source: Source, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return losses.margin(source.logits(images), labels)


def _drawn(ball: Ball, seeds: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    return ball.surface(seeds, list(images.shape[1:]))


def _inside(images: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """A step (B×H×W×C) without what would leave [0,1], forth or back: the source knows no other images."""
    fits = (images + step >= 0) & (images + step <= 1) & (images - step >= 0) & (images - step <= 1)
    return tf.where(fits, step, 0.0)
