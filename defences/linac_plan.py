"""Everything about a LINAC fit that depends on the key and the settings, and not on the image.

All images share the initial weights, the order of the pixels and the learning rates, so the transform is
deterministic given the key.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from typing import TYPE_CHECKING

import numpy as np

from defences import threefry

if TYPE_CHECKING:
    from defences.linac import LinacConfig

BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-8  # Adam, as the released code sets it


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """What a fit needs besides the image, float32."""

    encoding: np.ndarray  # pixels×4F: the network's input
    weights: tuple[np.ndarray, ...]  # L+1 matrices, fan in × fan out; biases start at 0
    order: np.ndarray  # steps×M, int64: the pixels of each mini-batch
    rates: np.ndarray  # steps×3: learning rate, and Adam's two bias corrections 1/(1 − beta^t)


@functools.lru_cache(maxsize=max(8, 2 * (os.cpu_count() or 1)))  # a key search has a key in hand on every core
def make(key: int, config: LinacConfig, height: int, width: int) -> Plan:
    """The plan of all images of one size under a key."""
    init_key, training_key, shuffle_key = _keys(threefry.key_words(key, config.key_bits))
    encoding = _encoding(height, width, config.frequencies)
    plan = Plan(
        encoding,
        _weights(init_key, [encoding.shape[1], *[config.width] * config.layers, 3]),
        _order(training_key, shuffle_key, height * width, config),
        _rates(config, config.epochs * (height * width // config.batch_pixels)),
    )
    for array in (*plan.weights, plan.order):
        array.setflags(write=False)
    return plan


def _keys(rng: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The init, training and shuffle keys. The second split is one the released code makes and does not use."""
    rng, init_key = threefry.split(rng)
    rng, _ = threefry.split(rng)
    rng, training_key = threefry.split(rng)
    rng, shuffle_key = threefry.split(rng)
    return init_key, training_key, shuffle_key


@functools.lru_cache(maxsize=8)
def _encoding(height: int, width: int, frequencies: int) -> np.ndarray:
    """Sines, then cosines, of the pixel's (x, y) at every frequency (pixels×4F)."""
    x, y = _line(-1, 1, width), _line(1, -1, height)
    grid = np.stack(np.meshgrid(x, y), -1).reshape(-1, 1, 2)
    angles = grid * (2 ** np.arange(frequencies) * np.pi).astype(np.float32)[:, None]
    # Sines in double precision, rounded once: single ones differ in the last bit from machine to machine.
    flat = angles.reshape(len(grid), -1).astype(np.float64)
    encoding = np.concatenate([np.sin(flat), np.cos(flat)], 1).astype(np.float32)
    encoding.setflags(write=False)
    return encoding


def _line(start: float, stop: float, count: int) -> np.ndarray:
    """linspace(start, stop, count + 2)[1:-1], rounded as JAX does: a fit of 320 steps tells the last bit."""
    part = np.arange(1, count + 1, dtype=np.float32) / np.float32(count + 1)
    return np.float32(start) * (np.float32(1) - part) + np.float32(stop) * part


def _weights(key: np.ndarray, sizes: list[int]) -> tuple[np.ndarray, ...]:
    """Truncated normals with standard deviation 1/sqrt(fan in), cut at two of them."""
    weights = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        key, matrix_key = threefry.split(key)
        weights.append(threefry.truncated_normal(matrix_key, (fan_in, fan_out)) * np.float32(1 / math.sqrt(fan_in)))
    return tuple(weights)


def _order(training_key: np.ndarray, shuffle_key: np.ndarray, pixels: int, config: LinacConfig) -> np.ndarray:
    """The pixels are shuffled once, and that order again in every epoch; what does not fill a batch is left out."""
    shuffled = threefry.permutation(shuffle_key, pixels)
    used = pixels // config.batch_pixels * config.batch_pixels
    epochs = []
    for epoch_key in threefry.split(training_key, config.epochs):
        order_key = threefry.split(threefry.split(epoch_key)[1])[1]
        epochs.append(shuffled[threefry.permutation(order_key, pixels)][:used])
    return np.concatenate(epochs).reshape(-1, config.batch_pixels)


@functools.lru_cache(maxsize=8)
def _rates(config: LinacConfig, steps: int) -> np.ndarray:
    """Cosine decay from the full rate to the floor's share of it, with the bias corrections of steps 1, 2, …"""
    cosine = (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2
    rate = config.learning_rate * ((1 - config.decay_floor) * cosine + config.decay_floor)
    count = np.arange(1, steps + 1)
    rates = np.stack([rate, 1 / (1 - BETA1**count), 1 / (1 - BETA2**count)], 1).astype(np.float32)
    rates.setflags(write=False)
    return rates
