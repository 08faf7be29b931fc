"""An eye on the gradients of a descent: what raises flags on its result."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from bench.api import Gradient


class Watch(NamedTuple):
    """What one descent has seen: B each."""

    queries: tf.Tensor  # int32: forward passes without a gradient
    seen: tf.Tensor  # int32: losses seen
    zero: tf.Tensor  # int32: of them, with a gradient that is all zero
    broken: tf.Tensor  # int32: of them, with a value that is not finite
    low: tf.Tensor  # float32: the lowest loss
    high: tf.Tensor  # float32: the highest loss


def fresh_watch(count: tf.Tensor) -> Watch:
    """A watch over so many examples that has seen nothing yet."""
    none = tf.zeros([count], tf.int32)
    infinity = tf.fill([count], float("inf"))
    return Watch(none, none, none, none, infinity, -infinity)


def observe(watch: Watch, found: Gradient, margin: tf.Tensor) -> tuple[Watch, tf.Tensor]:
    """Notes one gradient an example; gives it back (B×H×W×C) with zeros for what is not finite.

    `margin` is the source's margin there (B): past the boundary a loss may well be flat, as DLR is at its end.
    """
    # Only asked whether it is zero or finite, so the order of this sum does not matter.
    total = tf.reduce_sum(tf.abs(found.gradient), axis=[1, 2, 3])
    finite = tf.math.is_finite(total)
    seen = watch._replace(
        seen=watch.seen + 1,
        zero=watch.zero + tf.cast((total == 0) & (margin >= 0), tf.int32),
        broken=watch.broken + tf.cast(~finite, tf.int32),
        low=tf.minimum(watch.low, found.loss),
        high=tf.maximum(watch.high, found.loss),
    )
    gradient = tf.cond(
        tf.reduce_all(finite),
        lambda: found.gradient,
        lambda: tf.where(tf.math.is_finite(found.gradient), found.gradient, 0.0),
    )
    return seen, gradient
