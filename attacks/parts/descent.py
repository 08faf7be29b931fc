"""Projected gradient descent: a loss, a step rule, a start and a projection, put together into one compiled loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from attacks.parts import losses
from attacks.parts.engine import Fixed
from attacks.parts.observed import Observed, nothing_observed, observe
from attacks.parts.sums import choose
from bench.api import Ball, Loss, Source

Slots = tuple[tf.Tensor, ...]


class Best(NamedTuple):
    """The best images found so far, with their margins on the source."""

    images: tf.Tensor  # B×H×W×C
    margin: tf.Tensor  # B


class Descent(NamedTuple):
    """Where a descent stands."""

    images: tf.Tensor  # B×H×W×C
    slots: Slots  # what the step rule remembers
    best: Best
    observed: Observed


class Rule(NamedTuple):
    """A step rule."""

    start: Callable[[tf.Tensor], Slots]
    """What it remembers at first, given the images (B×H×W×C)."""
    move: Callable[[Slots, tf.Tensor, tf.Tensor], tuple[tf.Tensor, Slots]]
    """move(slots, gradient (B×H×W×C), number of the step, from 0) gives the step at rate 1 (B×H×W×C) and new slots."""


def adam(b1: float = 0.9, b2: float = 0.999, tiny: float = 1e-8) -> Rule:
    """Adam on the raw gradient, bias corrected."""

    def move(slots: Slots, gradient: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, Slots]:
        count = tf.cast(step + 1, tf.float32)
        mean = b1 * slots[0] + (1 - b1) * gradient
        square = b2 * slots[1] + (1 - b2) * tf.square(gradient)
        # The bias corrections are two scalars: folded into one, they cost no pass over the images.
        root = tf.sqrt(1 - tf.pow(b2, count))
        scale = root / (1 - tf.pow(b1, count))
        return scale * mean / (tf.sqrt(square) + tiny * root), (mean, square)

    return Rule(lambda images: (tf.zeros_like(images), tf.zeros_like(images)), move)


def steepest(ball: Ball) -> Rule:
    """The steepest direction of the ball: the sign of the gradient in L-inf, the gradient over its length in L2."""

    def move(slots: Slots, gradient: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, Slots]:
        return ball.steepest(gradient), slots

    return Rule(lambda images: (), move)


def begin(rule: Rule, images: tf.Tensor) -> Descent:
    """A descent that starts at these images (B×H×W×C) and has not looked at them yet."""
    count = tf.shape(images)[0]
    best = Best(images, tf.fill([count], float("inf")))
    return Descent(images, rule.start(images), best, nothing_observed(count))


def better(best: Best, images: tf.Tensor, margin: tf.Tensor) -> Best:
    """The better of two, by margin, for every example."""
    gained = margin < best.margin
    return Best(choose(gained, images, best.images), tf.where(gained, margin, best.margin))


def steps(source: Source, ball: Ball, rule: Rule, loss: Loss, every_step: bool) -> Callable[..., Descent]:
    """A function (state, fixed, epsilon, rates, first, last) that does the steps first..last−1 of a descent.

    `rates` holds the rate of every step. With `every_step` each iterate may become the best one; without it,
    only `finish` judges.
    """

    def block(
        state: Descent, fixed: Fixed, epsilon: tf.Tensor, rates: tf.Tensor, first: tf.Tensor, last: tf.Tensor
    ) -> Descent:
        def one(step: tf.Tensor, state: Descent) -> tuple[tf.Tensor, Descent]:
            found = source.gradient(loss, state.images, fixed.labels, fixed.targets)
            margin = losses.margin(found.logits, fixed.labels)
            observed, gradient = observe(state.observed, found, margin)
            best = better(state.best, state.images, margin) if every_step else state.best
            move, slots = rule.move(state.slots, gradient, step)
            images = ball.project(state.images - rates[step] * move, fixed.origin, epsilon)
            return step + 1, Descent(images, slots, best, observed)

        return tf.while_loop(lambda step, _: step < last, one, (first, state))[1]

    return block


def finish(source: Source) -> Callable[..., Best]:
    """A function (best, images, labels) that judges the images a descent has ended at."""

    def judge(best: Best, images: tf.Tensor, labels: tf.Tensor) -> Best:
        return better(best, images, losses.margin(source.logits(images), labels))

    return judge


def untargeted(loss: Loss) -> Loss:
    """A loss on (logits, labels) where (logits, labels, targets) are given."""

    def of_labels(logits: tf.Tensor, labels: tf.Tensor, targets: Any) -> tf.Tensor:
        return loss(logits, labels)

    return of_labels
