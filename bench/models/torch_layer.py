"""A Keras layer that computes through a PyTorch module: its weights are Keras variables, its gradient is torch's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bench import batches
from bench.models.torch_module import StateTensor, TorchModule

AT_ONCE = 16
"""Images that go through a module together in inference, if an image's bits do not depend on its place then."""


class TorchLayer(keras.layers.Layer):
    """Images (B×H×W×C) to what the module gives (B×classes). Weights are called as in the module's `state_dict`.

    In inference the module is in eval mode and a function of the images alone: its weights have no gradient then.
    """

    def __init__(self, module: TorchModule, classes: int, name: str) -> None:
        super().__init__(name=name)
        self.module, self._classes = module, classes
        self.state = {tensor.name: self._variable(tensor) for tensor in module.state}
        self._at_once: int | None = None
        batches.may_ask(self)

    def _variable(self, tensor: StateTensor) -> keras.Variable:
        def given(shape: Any, dtype: Any = None) -> np.ndarray:
            return tensor.value

        return self.add_weight(tensor.value.shape, given, trainable=tensor.trainable, name=tensor.name)

    def compute_output_spec(self, images: keras.KerasTensor, training: bool | None = None) -> keras.KerasTensor:
        return keras.KerasTensor((images.shape[0], self._classes), "float32")

    def call(self, images: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        values = [tf.convert_to_tensor(variable) for variable in self.state.values()]
        if training:
            outputs, *buffers = _training_pass(self.module)(images, *values)
            variables = list(self.state.values())
            for place, buffer in zip(self.module.buffers, buffers, strict=True):
                variables[place].assign(tf.ensure_shape(buffer, variables[place].shape))
        else:
            batches.ask(lambda: self._images_at_once(images.shape[1:]))
            outputs = _inference_pass(self.module, values)(images)
        return tf.ensure_shape(outputs, (images.shape[0], self._classes))

    @property
    def running_statistics(self) -> list[tuple[keras.Variable, keras.Variable]]:
        """The running mean and variance of every batch normalisation."""
        return [(self.state[mean], self.state[variance]) for mean, variance in self.module.running_statistics]

    def _images_at_once(self, shape: Sequence[int]) -> int:
        if self._at_once is None:
            with tf.init_scope():
                values = [np.asarray(variable) for variable in self.state.values()]
            self._at_once = AT_ONCE if self.module.same_in_every_place(AT_ONCE, shape, values) else 1
        return self._at_once


@dataclasses.dataclass
class _Traced:
    """What is known of a call once all of the function around it is traced, and before any of it runs."""

    gradient: bool = False
    """Whether a gradient will be asked for: then a forward pass is kept for it. An eager one is done again."""


def _inference_pass(module: TorchModule, values: Sequence[tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Images to outputs, with a gradient at the images."""
    traced = _Traced()

    def forward(images: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        outputs, number, _ = module.forward(images, values, training=False, keep=traced.gradient)
        return outputs, number

    def backward(number: np.ndarray, upstream: np.ndarray, images: np.ndarray, *values: np.ndarray) -> np.ndarray:
        return module.gradient(int(number), upstream, images, values, training=False)[0]

    @tf.custom_gradient
    def run(images: tf.Tensor) -> Any:
        outputs, number = _call(forward, [images, *values], [tf.float32, tf.int64])

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            traced.gradient = not tf.executing_eagerly()
            found = _call(backward, [number, upstream, images, *values], tf.float32)
            return tf.ensure_shape(found, images.shape)

        return outputs, gradient

    return run


def _training_pass(module: TorchModule) -> Callable[..., list[tf.Tensor]]:
    """Images and weights to outputs and the buffers after it, with a gradient at the images and the trainable weights."""
    traced = _Traced()

    def forward(images: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
        outputs, number, buffers = module.forward(images, values, training=True, keep=traced.gradient)
        return [outputs, number, *buffers]

    def backward(number: np.ndarray, upstream: np.ndarray, images: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
        return module.gradient(int(number), upstream, images, values, training=True)

    @tf.custom_gradient
    def run(images: tf.Tensor, *values: tf.Tensor) -> Any:
        kinds = [tf.float32, tf.int64, *[tf.float32] * len(module.buffers)]
        outputs, number, *buffers = _call(forward, [images, *values], kinds)

        def gradient(upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor | None]:
            traced.gradient = not tf.executing_eagerly()
            kinds = [tf.float32] * (1 + len(module.trainable))
            at_images, *found = _call(backward, [number, upstream, images, *values], kinds)
            at_weights: list[tf.Tensor | None] = [None] * len(values)
            for place, one in zip(module.trainable, found, strict=True):
                at_weights[place] = tf.ensure_shape(one, values[place].shape)
            return [tf.ensure_shape(at_images, images.shape), *at_weights]

        return [outputs, *buffers], gradient

    return run


def _call(function: Callable[..., Any], inputs: Sequence[tf.Tensor], kinds: Any) -> Any:
    """A function of arrays in TensorFlow's graph. It has no state, so calls may go side by side."""
    return tf.numpy_function(function, inputs, kinds, stateful=False)
