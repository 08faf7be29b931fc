"""RGB in [0,1] to what CIFAR-10 classifiers read; inside the defended model, so that epsilon stays in [0,1] units."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2471, 0.2435, 0.2616)


def standardise(images: tf.Tensor) -> tf.Tensor:
    """B×H×W×3 in [0,1] to B×H×W×3 with the training set's mean and deviation per channel."""
    return (images - tf.constant(MEAN, images.dtype)) / tf.constant(STD, images.dtype)


def as_images(standardised: np.ndarray) -> np.ndarray:
    """The inverse of `standardise`, in numpy and not cut off to [0,1] (B×H×W×3)."""
    return standardised * np.array(STD, np.float32) + np.array(MEAN, np.float32)


def straight_through(forward: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    """The value of `forward` with the gradient of `images`: the identity as BPDA's backward pass."""
    return images + tf.stop_gradient(forward - images)
