"""Random draws that belong to one example: from its seed alone, never shared by the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf


def fold(seeds: np.ndarray, number: int) -> np.ndarray:
    """New seeds (N×2, int32) for a restart, target or part of an attack: the splitmix64 hash of the seed and number."""
    words = np.ascontiguousarray(seeds, dtype=np.int32).view(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = _mix(_mix((words[:, 0] << np.uint64(32)) | words[:, 1]) + np.uint64(number))
    return np.stack([mixed >> np.uint64(32), mixed & np.uint64(0xFFFFFFFF)], axis=1).astype(np.uint32).view(np.int32)


def _mix(state: np.ndarray) -> np.ndarray:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def each_seed(draw: Callable[[tf.Tensor], tf.Tensor], seeds: tf.Tensor) -> tf.Tensor:
    """Stacks `draw(seed)` over the seeds (B×2)."""
    return tf.map_fn(draw, seeds, fn_output_signature=tf.float32)


def uniform(seeds: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """B×shape numbers, uniform in [0, 1)."""
    values = each_seed(lambda seed: tf.random.stateless_uniform(shape, seed, alg="philox"), seeds)
    return tf.ensure_shape(values, [None, *shape])


def normal(seeds: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """B×shape standard normal numbers."""
    values = each_seed(lambda seed: tf.random.stateless_normal(shape, seed, alg="philox"), seeds)
    return tf.ensure_shape(values, [None, *shape])
