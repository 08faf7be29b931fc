"""The statistics of batch normalisations, taken again when a training is done.

Running statistics lag behind weights that are averaged, or that were learned at a high rate to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf


def retake(model: keras.Model, forward: Callable[[tf.Tensor], tf.Tensor], batches: Iterable[np.ndarray]) -> None:
    """Sets a model's batch statistics to those of these batches together; `forward` puts a batch through it, training."""
    layers = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0  # so that the running statistics are those of the last batch
    compiled, found = tf.function(forward), []
    for batch in batches:
        compiled(tf.constant(batch))
        found.append([(np.float64(layer.moving_mean), np.float64(layer.moving_variance)) for layer in layers])
    for place, (layer, momentum) in enumerate(zip(layers, momenta, strict=True)):
        means = np.stack([batch[place][0] for batch in found])
        variances = np.stack([batch[place][1] for batch in found])
        layer.moving_mean.assign(means.mean(axis=0))
        layer.moving_variance.assign(variances.mean(axis=0) + means.var(axis=0))
        layer.momentum = momentum
