"""What a step of training does to the weights, given their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


class Nesterov:
    """Gradient descent with Nesterov's momentum; weight decay on kernels."""

    def __init__(self, variables: Sequence[tf.Variable], momentum: float, weight_decay: float) -> None:
        self._variables, self._momentum, self._weight_decay = variables, momentum, weight_decay
        self._momenta = [tf.Variable(tf.zeros_like(v)) for v in variables]

    def step(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
        """Moves the variables by their gradients, in the variables' order."""
        for variable, momentum, gradient in zip(self._variables, self._momenta, gradients, strict=True):
            if len(variable.shape) > 1:  # kernels only: neither biases nor the scales of batch normalisation
                gradient = gradient + self._weight_decay * tf.convert_to_tensor(variable)
            momentum.assign(self._momentum * momentum - rate * gradient)
            variable.assign_add(self._momentum * momentum - rate * gradient)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """What a checkpoint holds of it."""
        return {f"momentum:{i}": variable for i, variable in enumerate(self._momenta)}


class MovingAverage:
    """The exponential moving average of a model's weights, batch statistics included."""

    def __init__(self, variables: Sequence[tf.Variable], decay: float) -> None:
        self._variables, self._decay = variables, decay
        self._averages = [tf.Variable(tf.convert_to_tensor(v)) for v in variables]

    def decay_at(self, step: int) -> float:
        """The decay of a step; less in the beginning, so that the first weights are soon forgotten."""
        return min(self._decay, (1 + step) / (10 + step))

    def update(self, decay: tf.Tensor) -> None:
        """Takes the weights of now into the average."""
        for variable, average in zip(self._variables, self._averages, strict=True):
            average.assign(decay * average + (1 - decay) * tf.convert_to_tensor(variable))

    def take_over(self) -> None:
        """Sets the weights to their average."""
        for variable, average in zip(self._variables, self._averages, strict=True):
            variable.assign(average)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """What a checkpoint holds of it."""
        return {f"average:{i}": variable for i, variable in enumerate(self._averages)}
