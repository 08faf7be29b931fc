"""What a step of training does to the weights, given their gradients."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import keras
import tensorflow as tf

from bench.models.recipe import Recipe


class Nesterov:
    """Gradient descent with Nesterov's momentum; weight decay on kernels, and a rate of their own for offsets."""

    def __init__(self, variables: Sequence[tf.Variable], recipe: Recipe) -> None:
        self._variables, self._momentum, self._weight_decay = variables, recipe.momentum, recipe.weight_decay
        self._offset_rate = recipe.offset_rate
        self._momenta = [tf.Variable(tf.zeros_like(v)) for v in variables]

    def step(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
        """Moves the variables by their gradients, in the variables' order."""
        for variable, momentum, gradient in zip(self._variables, self._momenta, gradients, strict=True):
            if len(variable.shape) > 1:  # kernels only: neither biases nor the scales of batch normalisation
                gradient = gradient + self._weight_decay * tf.convert_to_tensor(variable)
            own_rate = rate * self._offset_rate if _is_offset(variable) else rate
            momentum.assign(self._momentum * momentum - own_rate * gradient)
            variable.assign_add(self._momentum * momentum - own_rate * gradient)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """What a checkpoint holds of it."""
        return {f"momentum:{i}": variable for i, variable in enumerate(self._momenta)}


def _is_offset(variable: keras.Variable) -> bool:
    """Whether it is the offset of a batch normalisation, by the name that Keras gives them."""
    return variable.name == "beta"


class Average(abc.ABC):
    """Weights averaged while others are trained; in the end they take their place."""

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self._variables = variables
        self._averages = [tf.Variable(tf.convert_to_tensor(v)) for v in variables]

    @abc.abstractmethod
    def decay_at(self, step: int) -> float:
        """How much of the average is kept when it is updated after this step, from 0."""

    @abc.abstractmethod
    def update(self, decay: tf.Tensor) -> None:
        """Takes the weights of now into the average."""

    def take_over(self) -> None:
        """Sets the weights to their average."""
        for variable, average in zip(self._variables, self._averages, strict=True):
            variable.assign(average)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """What a checkpoint holds of it."""
        return {f"average:{i}": variable for i, variable in enumerate(self._averages)}


class MovingAverage(Average):
    """The exponential moving average of a model's weights, batch statistics included."""

    def __init__(self, model: keras.Model, decay: float) -> None:
        super().__init__(model.weights)
        self._decay = decay

    def decay_at(self, step: int) -> float:
        """Less in the beginning, so that the first weights are soon forgotten."""
        return min(self._decay, (1 + step) / (10 + step))

    def update(self, decay: tf.Tensor) -> None:
        for variable, average in zip(self._variables, self._averages, strict=True):
            average.assign(decay * average + (1 - decay) * tf.convert_to_tensor(variable))


class Lookahead(Average):
    """An average that the trained weights are set back to every few steps; it keeps little at first and more at the end."""

    def __init__(self, model: keras.Model, decay: float, every: int, steps: int) -> None:
        super().__init__(model.trainable_variables)
        self._decay, self._every, self._steps = decay, every, steps

    def decay_at(self, step: int) -> float:
        """1 for the steps after which nothing is done."""
        done = step + 1
        return 1.0 if done % self._every else self._decay**self._every * (done / self._steps) ** 3

    def update(self, decay: tf.Tensor) -> None:
        if decay < 1:  # a tensor: the function that is compiled of this asks at every step
            for variable, average in zip(self._variables, self._averages, strict=True):
                average.assign(decay * average + (1 - decay) * tf.convert_to_tensor(variable))
                variable.assign(average)
