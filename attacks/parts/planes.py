"""The nearest point of a plane inside the box [0,1], in any norm."""

from __future__ import annotations

import tensorflow as tf

from attacks.parts.sums import image_sum, spread
from bench.api import Ball

ROUNDS = 40


def to_plane(ball: Ball, images: tf.Tensor, value: tf.Tensor, normal: tf.Tensor) -> tf.Tensor:
    """The smallest d with value + ⟨normal, d⟩ = 0 and images + d in [0,1], or the whole way to the box's edge.

    Images, normal and d are B×H×W×C, value is B. Each value of d moves towards the plane at its own speed u (1 in
    L-inf, |w| in L2) for a common time s, until it meets the box: d = ± min(s·u, room). What is gained in all,
    Σ|w|·min(s·u, room), is concave in s and made of straight pieces, so Newton's method from s = 0 climbs to the
    solution without ever passing it, piece by piece. An example that has arrived stays put, whatever the others do.
    """
    slope = -spread(tf.sign(value)) * tf.sign(normal)
    room = tf.abs(tf.cast(slope > 0, tf.float32) - images)  # up to 1, or down to 0
    weight = tf.abs(normal)
    # Scaled to a largest weight of 1, so that products of small gradients do not vanish.
    scale = tf.maximum(tf.reduce_max(weight, axis=[1, 2, 3]), 1e-37)
    weight = weight / spread(scale)
    need = tf.abs(value) / scale
    speed = ball.profile(weight)
    pull = weight * speed

    def climb(number: tf.Tensor, time: tf.Tensor, moving: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        way = spread(time) * speed
        gained = image_sum(weight * tf.minimum(way, room))
        rise = image_sum(pull * tf.cast(way < room, tf.float32))
        further = time + tf.math.divide_no_nan(tf.maximum(need - gained, 0.0), rise)
        still = moving & (further > time * (1.0 + 1e-6))
        return number + 1, tf.where(moving, further, time), still

    start = (tf.constant(0), tf.zeros_like(need), tf.fill(tf.shape(need), True))
    time = tf.while_loop(lambda number, _, moving: (number < ROUNDS) & tf.reduce_any(moving), climb, start)[1]
    return slope * tf.minimum(spread(time) * speed, room)
