"""The random numbers of the released LINAC code: JAX's threefry2x32 in its layout of 2022, in numpy.

A key is two 32-bit words. JAX has since changed how it lays out counters ("partitionable" threefry), so a new JAX
gives these numbers only with `jax_threefry_partitionable` off.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def key_words(key: int, bits: int = 64) -> np.ndarray:
    """A signed or unsigned 64-bit key as its [high, low] words (2); with 32 bits the high word is lost."""
    high = (key >> 32) & 0xFFFFFFFF if bits == 64 else 0
    return np.array([high, key & 0xFFFFFFFF], np.uint32)


def threefry2x32(key: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """20 rounds of threefry on the counter pairs (first, second), each any shape, uint32, under a key (2)."""
    schedule = np.array([key[0], key[1], key[0] ^ key[1] ^ PARITY], np.uint64)
    x, y = np.empty(first.shape, np.uint32), np.empty(first.shape, np.uint32)
    _rounds(schedule, np.array(ROTATIONS, np.uint64), first.ravel(), second.ravel(), x.reshape(-1), y.reshape(-1))
    return x, y


@njit(nogil=True, cache=True)
def _rounds(
    schedule: np.ndarray, rotations: np.ndarray, first: np.ndarray, second: np.ndarray, x: np.ndarray, y: np.ndarray
) -> None:
    """Counter by counter into x and y. A key takes some thirty small blocks: compiled, drawing one costs no fit.

    32-bit words in 64-bit registers, cut after every sum and rotation.
    """
    low, size, one = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)
    for i in range(len(first)):
        a = (np.uint64(first[i]) + schedule[0]) & low
        b = (np.uint64(second[i]) + schedule[1]) & low
        count = one
        for group in range(5):
            for turn in range(4):
                by = rotations[group % 2, turn]
                a = (a + b) & low
                b = (((b << by) | (b >> (size - by))) & low) ^ a
            a = (a + schedule[(group + 1) % 3]) & low
            b = (b + schedule[(group + 2) % 3] + count) & low
            count += one
        x[i], y[i] = a, b


def words(key: np.ndarray, count: int) -> np.ndarray:
    """`count` random 32-bit words (count). The counters go in as two halves; an odd count is padded with one 0."""
    counters = np.arange(count + count % 2, dtype=np.uint32)
    counters[count:] = 0
    first, second = np.split(counters, 2)
    return np.concatenate(threefry2x32(key, first, second))[:count]


def split(key: np.ndarray, count: int = 2) -> np.ndarray:
    """`count` new keys (count×2)."""
    return words(key, 2 * count).reshape(count, 2)


def permutation(key: np.ndarray, count: int) -> np.ndarray:
    """A random order of 0..count-1 (count), int64: sorted by random words, again and again until ties do not matter."""
    order = np.arange(count)
    for _ in range(math.ceil(3 * math.log(max(count, 1)) / math.log(2**32 - 1))):
        key, sort_key = split(key)
        order = order[np.argsort(words(sort_key, count), kind="stable")]
    return order


def uniform(key: np.ndarray, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Uniform float32 in [low, high), from the top 23 bits of a word each."""
    mantissa = words(key, math.prod(shape)) >> np.uint32(9)
    unit = (mantissa | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    low32, high32 = np.float32(low), np.float32(high)
    return np.maximum(low32, unit * (high32 - low32) + low32).reshape(shape)


def truncated_normal(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A standard normal cut off at ±2, float32."""
    edge = math.erf(math.sqrt(2))
    normal = np.float32(math.sqrt(2)) * erfinv(uniform(key, shape, -edge, edge))
    inside = np.nextafter(np.float32(2), np.float32(0))
    return np.clip(normal, -inside, inside)


# Giles, "Approximating the erfinv function" (2010): single precision, as XLA computes it. Highest power first.
CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
           -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
        0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def erfinv(x: np.ndarray) -> np.ndarray:
    """The inverse of erf on (-1, 1), float32, any shape."""
    w = -np.log1p(-x * x)
    central = np.polyval(np.array(CENTRAL, np.float32), w - np.float32(2.5))
    tail = np.polyval(np.array(TAIL, np.float32), np.sqrt(w) - np.float32(3))
    return np.where(w < 5, central, tail) * x
