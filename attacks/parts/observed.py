"""What a descent saw of its gradients and losses: the flags on its result are raised from it."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from bench.api import Gradient


class Observed(NamedTuple):
    """What one descent has seen, per example: B each."""

    queries: tf.Tensor  # int32: forward passes without a gradient
    seen: tf.Tensor  # int32: gradients seen
    zero: tf.Tensor  # int32: of them, with a gradient that is all zero
    non_finite: tf.Tensor  # int32: of them, with a value that is not finite
    low: tf.Tensor  # float32: the lowest loss, where gradients were seen, or without any the lowest of the queries
    high: tf.Tensor  # float32: the highest


def nothing_observed(count: tf.Tensor) -> Observed:
    """What is known of so many examples before the first step."""
    none = tf.zeros([count], tf.int32)
    infinity = tf.fill([count], float("inf"))
    return Observed(none, none, none, none, infinity, -infinity)


def observe(observed: Observed, found: Gradient, margin: tf.Tensor) -> tuple[Observed, tf.Tensor]:
    """Notes one gradient per example; gives it back (B×H×W×C) with zeros for what is not finite.

    `margin` is the source's margin there (B): past the boundary a loss may well be flat, as DLR is at its end.
    """
    # Only asked whether it is zero or finite, so the order of this sum does not matter.
    total = tf.reduce_sum(tf.abs(found.gradient), axis=[1, 2, 3])
    finite = tf.math.is_finite(total)
    seen = observed._replace(
        seen=observed.seen + 1,
        zero=observed.zero + tf.cast((total == 0) & (margin >= 0), tf.int32),
        non_finite=observed.non_finite + tf.cast(~finite, tf.int32),
        low=tf.minimum(observed.low, found.loss),
        high=tf.maximum(observed.high, found.loss),
    )
    gradient = tf.cond(
        tf.reduce_all(finite),
        lambda: found.gradient,
        lambda: tf.where(tf.math.is_finite(found.gradient), found.gradient, 0.0),
    )
    return seen, gradient
