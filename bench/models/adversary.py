"""Adversarial training's inner attack."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench import norms
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
        norms.named(self.norm)  # an unknown one is refused
        for name, holds, rule in (
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

        ball = norms.named(self.norm).ball()

        def moved(image: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(image)
                loss = tf.reduce_sum(tf.nn.softmax_cross_entropy_with_logits(targets, logits(image)))
            gradient = tape.gradient(loss, image)
            return inside(image + self.step * self.epsilon * ball.training_direction(gradient))

        def inside(moved: tf.Tensor) -> tf.Tensor:
            return tf.clip_by_value(images + ball.training_shrink(moved - images, self.epsilon), 0.0, 1.0)

        image = inside(images + self.epsilon * ball.training_start(images, seed))
        (image,) = tf.while_loop(lambda _: True, lambda x: (moved(x),), (image,), maximum_iterations=self.steps)
        return tf.stop_gradient(image)
