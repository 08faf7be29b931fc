"""A norm from outside, L1, as a package that tests install."""

from __future__ import annotations

from pathlib import Path

from tests import packages

L1 = '''
import numpy as np
from bench.api import Norm

class L1(Norm):
    """The sum of all changes."""

    name, label, latex, order = "l1", "L1", "$L_1$", 1

    def distance(self, images, adversarial):
        return np.abs(self.changes(images, adversarial)).sum(axis=1)

    def ball(self):
        from l1_ball import L1Ball
        return L1Ball(self)
'''

L1_BALL = '''
import tensorflow as tf
from attacks.parts import draws
from attacks.parts.sums import image_sum, spread
from bench.api import Ball

class L1Ball(Ball):
    """Few values move, and far. It has no dual, no profile and no moves for Square."""

    rule = "sign"

    def size(self, perturbation):
        return image_sum(tf.abs(perturbation))

    def shrink(self, perturbation, epsilon):
        """The projection of Duchi et al. (2008): all values lose as much, those that have less become 0."""
        flat = tf.reshape(tf.abs(perturbation), [-1, perturbation.shape[1] * perturbation.shape[2] * perturbation.shape[3]])
        ordered = tf.sort(flat, direction="DESCENDING")
        radius = epsilon * (1.0 - 1e-4)  # sums of thousands of values are off by a little
        count = tf.range(1, flat.shape[1] + 1, dtype=tf.float32)
        loss = (tf.cumsum(ordered, axis=1) - radius) / count
        kept = tf.reduce_sum(tf.cast(ordered > loss, tf.int32), axis=1)
        level = tf.maximum(tf.gather(loss, kept - 1, batch_dims=1), 0.0)
        return tf.sign(perturbation) * tf.maximum(tf.abs(perturbation) - spread(level), 0.0)

    def steepest(self, gradient):
        """All in the value that matters most."""
        flat = tf.reshape(gradient, [-1, gradient.shape[1] * gradient.shape[2] * gradient.shape[3]])
        one = tf.one_hot(tf.argmax(tf.abs(flat), axis=1), flat.shape[1]) * tf.sign(flat)
        return tf.reshape(one, tf.shape(gradient))

    def inside(self, seeds, shape):
        signs = tf.sign(draws.uniform(seeds[:, ::-1], shape) - 0.5)
        drawn = -tf.math.log(1.0 - draws.uniform(seeds, shape)) * signs
        return drawn / spread(self.size(drawn))
'''


def install_l1(folder: Path) -> str:
    packages.write(folder, "l1-pack", "norms", "l1", "l1_norm", L1, "L1")
    (folder / "l1_ball.py").write_text(L1_BALL)
    return str(folder)
