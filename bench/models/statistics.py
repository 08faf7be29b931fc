"""The statistics of batch normalisations, taken again when a training is done.

Running statistics lag behind weights that are averaged, or that were learned at a high rate to the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import keras
import numpy as np
import tensorflow as tf

from bench.models.torch_layer import TorchLayer


def retake(model: keras.Model, forward: Callable[[tf.Tensor], tf.Tensor], batches: Iterable[np.ndarray]) -> None:
    """Sets a model's batch statistics to those of these batches together; `forward` puts a batch through it, training."""
    running = [pair for layer in model.layers for pair in _running_statistics(layer)]
    if not running:
        return
    compiled, found = tf.function(forward), []
    with contextlib.ExitStack() as stack:
        for layer in model.layers:
            stack.enter_context(_last_batch_alone(layer))
        for batch in batches:
            compiled(tf.constant(batch))
            found.append([(np.float64(mean), np.float64(variance)) for mean, variance in running])
    for place, (mean, variance) in enumerate(running):
        means = np.stack([batch[place][0] for batch in found])
        variances = np.stack([batch[place][1] for batch in found])
        mean.assign(means.mean(axis=0))
        variance.assign(variances.mean(axis=0) + means.var(axis=0))


def _running_statistics(layer: keras.layers.Layer) -> list[tuple[keras.Variable, keras.Variable]]:
    """The running means and variances in a layer."""
    if isinstance(layer, keras.layers.BatchNormalization):
        return [(layer.moving_mean, layer.moving_variance)]
    return layer.running_statistics if isinstance(layer, TorchLayer) else []


@contextlib.contextmanager
def _last_batch_alone(layer: keras.layers.Layer) -> Iterator[None]:
    """Meanwhile a layer's running statistics are those of the last batch."""
    if isinstance(layer, TorchLayer):
        with layer.module.last_batch_alone():
            yield
    elif isinstance(layer, keras.layers.BatchNormalization):
        momentum, layer.momentum = layer.momentum, 0.0
        yield
        layer.momentum = momentum
    else:
        yield
