"""RGB in [0,1] to what CIFAR-10 classifiers read; inside the defended model, so that epsilon stays in [0,1] units."""

from __future__ import annotations

import tensorflow as tf

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2471, 0.2435, 0.2616)


def standardise(images: tf.Tensor) -> tf.Tensor:
    """B×H×W×3 in [0,1] to B×H×W×3 with the training set's mean and deviation a channel."""
    return (images - tf.constant(MEAN, images.dtype)) / tf.constant(STD, images.dtype)


def straight_through(forward: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    """The value of `forward` with the gradient of `images`: the identity as BPDA's backward pass."""
    return images + tf.stop_gradient(forward - images)
