"""Sources an attacker can compute with."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from bench.api import Gradient, Loss, Source, each_image


class ModelSource(Source):
    """Any differentiable function of images (B×H×W×C in [0,1]) that gives logits (B×classes)."""

    def __init__(
        self,
        name: str,
        forward: Callable[[tf.Tensor], tf.Tensor],
        exact: bool = False,
        has_gradient: bool = True,
    ) -> None:
        self.name = name
        self.forward = forward
        self.exact = exact
        self.has_gradient = has_gradient

    def logits(self, images: tf.Tensor) -> tf.Tensor:
        return each_image(self.forward, images, signature=tf.TensorSpec([None], tf.float32))

    def gradient(self, loss: Loss, images: tf.Tensor, *labels: tf.Tensor) -> Gradient:
        def one(image: tf.Tensor, *label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(image)
                logits = self.forward(image)
                value = loss(logits, *label)
            # A forward pass that cuts the path back (a quantised input) has a gradient of zero, not none.
            gradient = tape.gradient(value, image, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return value, logits, gradient

        signature = (
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec(images.shape[1:], tf.float32),
        )
        value, logits, gradient = each_image(one, images, *labels, signature=signature)
        return Gradient(value, logits, gradient)
