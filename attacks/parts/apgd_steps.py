"""The loop of Auto-PGD (Croce and Hein, 2020): momentum, and a step size that halves itself at checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from attacks.parts import losses
from attacks.parts.descent import Best, better
from attacks.parts.engine import Fixed
from attacks.parts.observed import Observed, nothing_observed, observe
from attacks.parts.sums import choose, spread
from bench.api import Ball, Gradient, Loss, Source

MOMENTUM = 0.75
RISE_SHARE = 0.75


class ApgdPoint(NamedTuple):
    """A point of the ball, with the loss and its gradient there."""

    images: tf.Tensor  # B×H×W×C
    loss: tf.Tensor  # B
    gradient: tf.Tensor  # B×H×W×C


class Apgd(NamedTuple):
    """Where Auto-PGD stands."""

    now: ApgdPoint
    before: tf.Tensor  # B×H×W×C: the iterate before this one
    lowest: ApgdPoint  # that of the lowest loss so far
    eta: tf.Tensor  # B: the step size
    gains: tf.Tensor  # B: steps since the last checkpoint that lowered the loss
    last_loss: tf.Tensor  # B: the loss of the last step taken, also after going back to the lowest
    checked: tf.Tensor  # B: the lowest loss at the last checkpoint
    halved: tf.Tensor  # B, bool: whether the step was halved there
    best: Best  # the adversarial image to give back
    observed: Observed


def checkpoints(steps: int) -> np.ndarray:
    """For every step the length of the window it closes, or 0: windows of .22 N, shrinking by .03 N down to .06 N."""
    closes = np.zeros(steps, np.int32)
    window, position = max(int(0.22 * steps), 1), 0
    while position + window <= steps:
        position += window
        closes[position - 1] = window
        window = max(window - max(int(0.03 * steps), 1), max(int(0.06 * steps), 1))
    return closes


class ApgdLoop(NamedTuple):
    """Auto-PGD put together."""

    source: Source
    ball: Ball
    loss: Loss
    draws: int  # gradients averaged at every point, for a source that is random
    pick: Callable[[Best, tf.Tensor, tf.Tensor], Best]  # how the image to give back is chosen

    def start(self, fixed: Fixed, seeds: tf.Tensor, epsilon: tf.Tensor) -> Apgd:
        """A random point on the surface of the ball, and its gradient. Seeds are B×2."""
        ball = self.ball
        drawn = fixed.origin + epsilon * ball.surface(seeds, list(fixed.origin.shape[1:]))
        images = ball.project(drawn, fixed.origin, epsilon)
        count = tf.shape(images)[0]
        best = Best(images, tf.fill([count], float("inf")))
        point, best, observed = self._look(images, fixed, best, nothing_observed(count))
        return Apgd(
            now=point,
            before=images,
            lowest=point,
            eta=tf.fill([count], 2.0 * epsilon),
            gains=tf.zeros([count], tf.int32),
            last_loss=point.loss,
            checked=point.loss,
            halved=tf.fill([count], True),  # so that the first checkpoint judges by the gains alone
            best=best,
            observed=observed,
        )

    def block(
        self, state: Apgd, fixed: Fixed, epsilon: tf.Tensor, closes: tf.Tensor, first: tf.Tensor, last: tf.Tensor
    ) -> Apgd:
        """The steps first..last−1; `closes` as `checkpoints` gives it."""

        def one(step: tf.Tensor, state: Apgd) -> tuple[tf.Tensor, Apgd]:
            images = self._move(state, fixed.origin, epsilon, tf.where(step > 0, MOMENTUM, 1.0))
            point, best, observed = self._look(images, fixed, state.best, state.observed)
            state = state._replace(
                now=point,
                before=state.now.images,
                lowest=lower(point, state.lowest),
                gains=state.gains + tf.cast(point.loss < state.last_loss, tf.int32),
                last_loss=point.loss,
                best=best,
                observed=observed,
            )
            window = closes[step]
            return step + 1, tf.cond(window > 0, lambda: checkpoint(state, window), lambda: state)

        return tf.while_loop(lambda step, _: step < last, one, (first, state))[1]

    def _move(self, state: Apgd, origin: tf.Tensor, epsilon: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
        now = state.now.images
        z = now - spread(state.eta) * self.ball.steepest(state.now.gradient)
        z = self.ball.project(z, origin, epsilon)
        moved = now + share * (z - now) + (1.0 - share) * (now - state.before)
        return self.ball.project(moved, origin, epsilon)

    def _look(
        self, images: tf.Tensor, fixed: Fixed, best: Best, observed: Observed
    ) -> tuple[ApgdPoint, Best, Observed]:
        found = self._gradient(images, fixed)
        margin = losses.margin(found.logits, fixed.labels)
        observed, gradient = observe(observed, found, margin)
        best = self.pick(best, images, margin)
        return ApgdPoint(images, found.loss, gradient), best, observed

    def _gradient(self, images: tf.Tensor, fixed: Fixed) -> Gradient:
        """The gradient, averaged over the draws of a random source."""
        found = self.source.gradient(self.loss, images, fixed.labels, fixed.targets)
        if self.draws == 1:
            return found
        total = (found.loss, found.logits, found.gradient)

        def again(number: tf.Tensor, total: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
            more = self.source.gradient(self.loss, images, fixed.labels, fixed.targets)
            return number + 1, (total[0] + more.loss, total[1] + more.logits, total[2] + more.gradient)

        total = tf.while_loop(lambda number, _: number < self.draws, again, (tf.constant(1), total))[1]
        return Gradient(*[value / float(self.draws) for value in total])


def lower(one: ApgdPoint, other: ApgdPoint) -> ApgdPoint:
    """The first point where its loss is lower, else the second."""
    gained = one.loss < other.loss
    return ApgdPoint(
        choose(gained, one.images, other.images),
        tf.where(gained, one.loss, other.loss),
        choose(gained, one.gradient, other.gradient),
    )


def checkpoint(state: Apgd, window: tf.Tensor) -> Apgd:
    """Halves the step of examples that gained too seldom or got stuck, and takes them back to their lowest point."""
    seldom = tf.cast(state.gains, tf.float32) <= RISE_SHARE * tf.cast(window, tf.float32)
    stuck = ~state.halved & (state.lowest.loss >= state.checked)
    halve = seldom | stuck
    back = ApgdPoint(
        choose(halve, state.lowest.images, state.now.images),
        tf.where(halve, state.lowest.loss, state.now.loss),
        choose(halve, state.lowest.gradient, state.now.gradient),
    )
    return state._replace(
        now=back,
        eta=tf.where(halve, state.eta / 2.0, state.eta),
        gains=tf.zeros_like(state.gains),
        checked=state.lowest.loss,
        halved=halve,
    )


def latest(best: Best, images: tf.Tensor, margin: tf.Tensor) -> Best:
    """The latest misclassified iterate, as AutoAttack keeps it."""
    solved = margin < 0
    return Best(choose(solved, images, best.images), tf.where(solved, margin, best.margin))


PICKS = {"first-success": latest, "best-margin": better}
