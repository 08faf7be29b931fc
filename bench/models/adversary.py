"""Adversarial training's inner attack."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.api import UsageError

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Adversary:
    """PGD on the cross-entropy from a random start; one step of 1.25 is FGSM-RS."""

    norm: str
    epsilon: float
    steps: int = 10
    step: float = 0.25
    """In units of epsilon."""

    def __post_init__(self) -> None:
        for name, holds, rule in (
            ("norm", self.norm in ("linf", "l2"), "must be linf or l2"),
            ("epsilon", self.epsilon > 0, "must be above 0"),
            ("steps", self.steps >= 1, "must be at least 1"),
            ("step", self.step > 0, "must be above 0"),
        ):
            if not holds:
                raise UsageError(f"training: the adversary's {name} is {getattr(self, name)}; it {rule}")

    def attack(
        self, logits: Callable[[tf.Tensor], tf.Tensor], images: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """Images (B×H×W×3) moved towards a higher loss, inside the ball and the range."""
        import tensorflow as tf

        def moved(image: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(image)
                loss = tf.reduce_sum(tf.nn.softmax_cross_entropy_with_logits(targets, logits(image)))
            gradient = tape.gradient(loss, image)
            ahead = tf.sign(gradient) if self.norm == "linf" else gradient / (_length(gradient) + 1e-12)
            return self._inside(image + self.step * self.epsilon * ahead, images)

        drawn = tf.random.stateless_uniform(tf.shape(images), seed, -1.0, 1.0)
        if self.norm == "l2":
            drawn = drawn / _length(drawn)
        image = self._inside(images + self.epsilon * drawn, images)
        (image,) = tf.while_loop(lambda _: True, lambda x: (moved(x),), (image,), maximum_iterations=self.steps)
        return tf.stop_gradient(image)

    def _inside(self, moved: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        change = moved - images
        if self.norm == "linf":
            change = tf.clip_by_value(change, -self.epsilon, self.epsilon)
        else:
            change *= tf.minimum(1.0, self.epsilon / (_length(change) + 1e-12))
        return tf.clip_by_value(images + change, 0.0, 1.0)


def _length(tensor: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.sqrt(tf.reduce_sum(tf.square(tensor), axis=(1, 2, 3), keepdims=True))
