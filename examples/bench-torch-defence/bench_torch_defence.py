"""A complete defence of a third party in PyTorch, as its author had it, and its classifier; at the end the way to bench."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import torch
from torch import nn
from torch.nn import functional

from bench.api import Defence, UsageError


def shuffled(images, key, block):
    """The author's own code: images (B×3×H×W in [0,1]) to what the classifier reads (B×3×H×W)."""
    random = np.random.RandomState([key % 2**64 >> 32, key % 2**32])  # its numbers never change
    values = functional.pixel_unshuffle(2 * images - 1, block)
    order = torch.from_numpy(random.permutation(values.shape[1]))
    signs = torch.from_numpy(random.choice(np.array([-1, 1], np.float32), size=(values.shape[1], 1, 1)))
    return functional.pixel_shuffle(signs * values[:, order], block)


def classifier(shape, classes):
    """The author's network, for `--classifier torch:bench_torch_defence:classifier`."""
    channels = (32, 64, 128)
    layers = []
    for before, after in zip((shape[2], *channels), channels, strict=False):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.GELU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], classes))


@dataclass(frozen=True)
class TorchShuffleSettings:
    block: int = 4

    def __post_init__(self):
        if self.block < 1:
            raise UsageError(f"torch-shuffle: block is {self.block}; it must be at least 1")


class TorchShuffle(Defence):
    """A keyed order and keyed signs of the values of every block, computed by PyTorch."""

    Settings = TorchShuffleSettings
    keyed = True

    def transform(self, images, key, state):
        block = self.settings.block

        def forward(values):
            return _last(shuffled(_first(values), key, block))

        def slope(values, upstream):
            leaf = _first(values).requires_grad_()
            (gradient,) = torch.autograd.grad(shuffled(leaf, key, block), leaf, _first(upstream))
            return _last(gradient)

        @tf.custom_gradient
        def keyed(x):
            return _call(forward, x, shape=x.shape), lambda upstream: _call(slope, x, upstream, shape=x.shape)

        return keyed(images)


def _call(function, *tensors, shape):
    """A function of numpy arrays inside a graph, which has to be told the shape."""
    return tf.ensure_shape(tf.numpy_function(function, tensors, tf.float32, stateful=False), shape)


def _first(values):
    """B×H×W×C in numpy to B×C×H×W in torch."""
    return torch.from_numpy(np.ascontiguousarray(values.transpose(0, 3, 1, 2)))


def _last(values):
    return np.ascontiguousarray(values.detach().numpy().transpose(0, 2, 3, 1))
