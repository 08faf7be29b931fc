"""The balls of the built-in norms: what `bench.api.Ball` promises, in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from attacks.parts import draws
from attacks.parts.square_moves import L2Moves, LinfMoves
from attacks.parts.sums import image_sum, spread
from bench.api import Ball, Shape

TINY = 1e-12


class LinfBall(Ball):
    """No value is changed by more than epsilon."""

    rule = "adam"

    def size(self, perturbation: tf.Tensor) -> tf.Tensor:
        return tf.reduce_max(tf.abs(perturbation), axis=[1, 2, 3])

    def dual(self, gradient: tf.Tensor) -> tf.Tensor:
        return image_sum(tf.abs(gradient))

    def shrink(self, perturbation: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        bound = _broadcast(epsilon)
        return tf.clip_by_value(perturbation, -bound, bound)

    def steepest(self, gradient: tf.Tensor) -> tf.Tensor:
        return tf.sign(gradient)

    def profile(self, gradient: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(gradient)

    def inside(self, seeds: tf.Tensor, shape: list[int]) -> tf.Tensor:
        return 2.0 * draws.uniform(seeds, shape) - 1.0

    def square_moves(self, shape: Shape) -> LinfMoves:
        return LinfMoves(self, shape)

    def training_start(self, images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform(tf.shape(images), seed, -1.0, 1.0)


class L2Ball(Ball):
    """The Euclidean length of the change is at most epsilon."""

    # Adam moves every value by about as much, which wastes the ball's radius on values that do not matter: on an
    # adversarially trained network 55 of 100 images withstood it at radius .5, and 48 the steepest direction.
    rule = "sign"

    def size(self, perturbation: tf.Tensor) -> tf.Tensor:
        return tf.sqrt(image_sum(tf.square(perturbation)))

    def dual(self, gradient: tf.Tensor) -> tf.Tensor:
        return self.size(gradient)

    def shrink(self, perturbation: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        # Adding the perturbation to an image in [0,1] rounds every value by up to 2^-25, all of them outwards at
        # worst; the sum of squares is off by a few parts in 10^7. The radius gives both away beforehand.
        count = float(perturbation.shape[1] * perturbation.shape[2] * perturbation.shape[3])
        radius = tf.maximum(epsilon * (1.0 - 1e-6) - count**0.5 * 2.0**-25, 0.0)
        return perturbation * spread(tf.minimum(radius / tf.maximum(self.size(perturbation), TINY), 1.0))

    def steepest(self, gradient: tf.Tensor) -> tf.Tensor:
        # Divided by the largest value first: squares of a small gradient vanish in float32.
        scaled = gradient / spread(tf.maximum(tf.reduce_max(tf.abs(gradient), axis=[1, 2, 3]), 1e-37))
        return scaled / spread(tf.maximum(self.size(scaled), TINY))

    def profile(self, gradient: tf.Tensor) -> tf.Tensor:
        return tf.abs(gradient)

    def inside(self, seeds: tf.Tensor, shape: list[int]) -> tf.Tensor:
        count = float(shape[0] * shape[1] * shape[2])
        # The seed's words swapped: another stream than the direction's.
        # In float64, because in float32 a power's last bit depends on where in the batch it is computed.
        share = tf.cast(draws.uniform(seeds[:, ::-1], [1])[:, 0], tf.float64)
        radius = tf.cast(share ** (1.0 / count), tf.float32)
        return self.surface(seeds, shape) * spread(radius)

    def surface(self, seeds: tf.Tensor, shape: list[int]) -> tf.Tensor:
        drawn = draws.normal(seeds, shape)
        return drawn / spread(tf.maximum(self.size(drawn), TINY))

    def square_moves(self, shape: Shape) -> L2Moves:
        return L2Moves(self, shape)

    def training_start(self, images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        drawn = tf.random.stateless_uniform(tf.shape(images), seed, -1.0, 1.0)
        return drawn / _lengths(drawn)

    def training_direction(self, gradient: tf.Tensor) -> tf.Tensor:
        return gradient / (_lengths(gradient) + TINY)

    def training_shrink(self, perturbation: tf.Tensor, epsilon: float) -> tf.Tensor:
        return perturbation * tf.minimum(1.0, epsilon / (_lengths(perturbation) + TINY))


def _lengths(perturbation: tf.Tensor) -> tf.Tensor:
    """The plain way: B×H×W×C to B×1×1×1, the last bits of which may depend on the batch."""
    return tf.sqrt(tf.reduce_sum(tf.square(perturbation), axis=(1, 2, 3), keepdims=True))


def _broadcast(epsilon: tf.Tensor) -> tf.Tensor:
    epsilon = tf.convert_to_tensor(epsilon)
    return spread(epsilon) if len(epsilon.shape) else epsilon
