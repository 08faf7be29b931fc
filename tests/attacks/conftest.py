"""Small networks and batches to attack."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf

from bench.api import Batch, ModelSource
from bench.support import devices

devices.configure()

SHAPE = (8, 8, 3)


class Network:
    """A small convolutional network with random weights: B×8×8×3 to B×classes."""

    def __init__(self, classes: int = 5, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.kernel = tf.constant(generator.normal(size=(3, 3, 3, 6)) / 3, tf.float32)
        self.dense = tf.constant(generator.normal(size=(16 * 6, classes)) / 2, tf.float32)

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        hidden = tf.nn.silu(tf.nn.conv2d(4 * images - 2, self.kernel, strides=2, padding="SAME"))
        return tf.reshape(hidden, [-1, 16 * 6]) @ self.dense


def a_batch(network: Network, count: int = 6, norm: str = "linf", epsilon: float = 0.05, seed: int = 1) -> Batch:
    """Random images, labelled as the network sees them: at first nothing is misclassified."""
    generator = np.random.default_rng(seed)
    images = generator.uniform(0.2, 0.8, size=(count, *SHAPE)).astype(np.float32)
    labels = np.argmax(network(tf.constant(images)).numpy(), axis=1).astype(np.int32)
    seeds = generator.integers(-(2**31), 2**31, size=(count, 2)).astype(np.int32)
    return Batch(images, labels, seeds, norm, epsilon, batch_size=4)


@pytest.fixture(scope="session")
def network() -> Network:
    return Network()


@pytest.fixture(scope="session")
def sources(network: Network) -> dict[bool, ModelSource]:
    """The network as a transfer source and as an exact one; kept, and what is compiled for them with them."""
    plain = ModelSource("network", network)
    vars(plain)["_compiled"] = {}  # so that the two share what engines compile for them
    exact = copy.copy(plain)
    exact.exact = True
    return {False: plain, True: exact}


@pytest.fixture(scope="session")
def source(sources: dict[bool, ModelSource]) -> ModelSource:
    return sources[False]


@pytest.fixture(scope="session")
def exact_source(sources: dict[bool, ModelSource]) -> ModelSource:
    return sources[True]
