"""The balls an attack moves in, as values: all that an engine needs to know of a norm.

An image is "inside" when it is in [0,1] and no further than epsilon from its origin. Perturbations, gradients and
images are B×H×W×C; sizes are B; epsilon is a scalar or B.
"""

from __future__ import annotations

import abc
from typing import Literal

import tensorflow as tf

from attacks.parts import draws
from attacks.parts.sums import image_sum, spread
from bench.api import UsageError

TINY = 1e-12


class Norm(abc.ABC):
    """A norm on images, its ball, and what engines do in it."""

    name: str
    rule: Literal["adam", "sign"]
    """The step rule with which PGD is strongest in this ball."""

    @abc.abstractmethod
    def size(self, perturbation: tf.Tensor) -> tf.Tensor:
        """The norm of each perturbation: B×H×W×C to B."""

    @abc.abstractmethod
    def dual(self, gradient: tf.Tensor) -> tf.Tensor:
        """The dual norm of each gradient: how fast a linear function falls along `steepest`. B×H×W×C to B."""

    @abc.abstractmethod
    def shrink(self, perturbation: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """The nearest perturbation in the ball, without regard to [0,1]."""

    @abc.abstractmethod
    def steepest(self, gradient: tf.Tensor) -> tf.Tensor:
        """The direction of size 1 in which the loss rises fastest; zero where the gradient is zero."""

    @abc.abstractmethod
    def profile(self, gradient: tf.Tensor) -> tf.Tensor:
        """How fast each value moves, without sign, on the shortest way to a plane with this normal."""

    @abc.abstractmethod
    def inside(self, seeds: tf.Tensor, shape: list[int]) -> tf.Tensor:
        """One draw a seed (B×2), uniform in the unit ball: B×shape."""

    @abc.abstractmethod
    def surface(self, seeds: tf.Tensor, shape: list[int]) -> tf.Tensor:
        """One draw a seed (B×2), of size 1, as AutoAttack draws its starts: B×shape."""

    def project(self, images: tf.Tensor, origin: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """Images into the ball around `origin` and into [0,1].

        The clip to [0,1] comes last; it moves every value towards the origin's, so it never leaves the ball.
        """
        return tf.clip_by_value(origin + self.shrink(images - origin, epsilon), 0.0, 1.0)

    def random_start(self, origin: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """A point drawn uniformly from the ball around each image, then put into [0,1]."""
        return self.project(origin + epsilon * self.inside(seeds, list(origin.shape[1:])), origin, epsilon)


class Linf(Norm):
    """The largest change of any value."""

    name = "linf"
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

    def surface(self, seeds: tf.Tensor, shape: list[int]) -> tf.Tensor:
        drawn = self.inside(seeds, shape)
        return drawn / spread(tf.maximum(self.size(drawn), TINY))


class L2(Norm):
    """The Euclidean length of the change."""

    name = "l2"
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


NORMS: dict[str, Norm] = {norm.name: norm for norm in (Linf(), L2())}


def named(name: str) -> Norm:
    """The norm of this name."""
    if name not in NORMS:
        raise UsageError(f"norm {name!r} is not known: use one of {', '.join(NORMS)}")
    return NORMS[name]


def _broadcast(epsilon: tf.Tensor) -> tf.Tensor:
    epsilon = tf.convert_to_tensor(epsilon)
    return spread(epsilon) if len(epsilon.shape) else epsilon
