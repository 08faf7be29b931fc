"""From images to logits, compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bench.api import Shape, each_image


def classify(
    model: Callable[..., tf.Tensor], transform: Callable[[tf.Tensor], tf.Tensor], shape: Shape
) -> Callable[[np.ndarray], np.ndarray]:
    """A compiled function from images (N×H×W×3, [0,1]) to logits (N×classes); an image's logits depend on it alone."""

    def one(image: tf.Tensor) -> tf.Tensor:
        return model(transform(image), training=False)

    compiled = tf.function(
        lambda images: each_image(one, images, signature=tf.float32),
        input_signature=[tf.TensorSpec((None, *shape), tf.float32)],
    )

    def logits(images: np.ndarray) -> np.ndarray:
        parts = [compiled(tf.constant(images[i : i + 256])).numpy() for i in range(0, len(images), 256)]
        return np.concatenate(parts)

    return logits
