"""JPEG as a differentiable function: what its encoder and decoder do, with rounding that has a slope.

Colours, chroma at half size, 8×8 cosine transform, quantisation, and back. Rounding is r + (v − r)³ with r = round(v)
(Shin and Song, 2017): right at whole numbers, and steepest half way between them, where a small change of the image
changes what is kept. Images are B×H×W×3 in [0,1].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

LUMINANCE = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
"""The standard's table K.1; a step of the quantisation per frequency."""
CHROMINANCE = np.full((8, 8), 99)
CHROMINANCE[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
"""The standard's table K.2."""

TO_YCC = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])

Rounding = Callable[[tf.Tensor], tf.Tensor]


def smooth_round(values: tf.Tensor) -> tf.Tensor:
    """The nearest whole number, and the cube of what is left: its slope is 0 at whole numbers and 3/4 between two."""
    whole = tf.stop_gradient(tf.round(values))
    return whole + (values - whole) ** 3


def steps(table: np.ndarray, quality: int) -> np.ndarray:
    """A table of the standard at a quality from 1 to 100, as libjpeg scales it: 8×8."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((table * scale + 50) // 100, 1, 255)


def cosines() -> np.ndarray:
    """The orthonormal cosine transform of eight values, as a matrix: 8×8."""
    place, frequency = np.arange(8), np.arange(8)[:, None]
    rows = np.cos((2 * place + 1) * frequency * np.pi / 16) / 2
    rows[0] /= np.sqrt(2)
    return rows


def compressed(images: tf.Tensor, quality: int, halved: bool, rounding: Rounding = smooth_round) -> tf.Tensor:
    """Through the encoder and the decoder: B×H×W×3 in [0,1], each way. `halved` is whether chroma is kept at half size."""
    height, width = images.shape[1], images.shape[2]
    values = _filled(255.0 * images, 16 if halved else 8)
    colours = _levels(tf.tensordot(values, tf.constant(TO_YCC.T, tf.float32), 1))
    light = _quantised(colours[..., :1] - 128.0, steps(LUMINANCE, quality), rounding) + 128.0
    chroma = _levels(tf.nn.avg_pool2d(colours[..., 1:], 2, 2, "VALID")) if halved else colours[..., 1:]
    chroma = _quantised(chroma, steps(CHROMINANCE, quality), rounding)
    if halved:
        chroma = _doubled(_doubled(chroma, 1), 2)
    back = tf.constant(np.linalg.inv(TO_YCC).T, tf.float32)
    decoded = tf.tensordot(tf.concat([light, chroma], axis=3), back, 1)
    return tf.clip_by_value(decoded, 0.0, 255.0)[:, :height, :width] / 255.0


def _levels(values: tf.Tensor) -> tf.Tensor:
    """Whole levels, as the encoder has them, with the gradient of the values: they are fine against the table's steps."""
    return values + tf.stop_gradient(tf.round(values) - values)


def _filled(values: tf.Tensor, size: int) -> tf.Tensor:
    """Up to whole blocks of this size, by repeating the last row and column."""
    for axis in (1, 2):
        missing = -values.shape[axis] % size
        last = values[:, -1:] if axis == 1 else values[:, :, -1:]
        values = tf.concat([values, *[last] * missing], axis=axis)
    return values


def _quantised(values: tf.Tensor, table: np.ndarray, rounding: Rounding) -> tf.Tensor:
    """Each 8×8 block of B×H×W×C as cosines, rounded to whole steps of the table, and back."""
    height, width, channels = values.shape[1:]
    blocks = tf.reshape(values, [-1, height // 8, 8, width // 8, 8, channels])
    transform, sizes = tf.constant(cosines(), tf.float32), tf.constant(table[..., None], tf.float32)
    waves = tf.einsum("ui,vj,bhiwjc->bhwuvc", transform, transform, blocks) / sizes
    waves = rounding(waves) * sizes
    return tf.reshape(tf.einsum("ui,vj,bhwuvc->bhiwjc", transform, transform, waves), [-1, height, width, channels])


def _doubled(values: tf.Tensor, axis: int) -> tf.Tensor:
    """Twice as many rows (axis 1) or columns (2): three quarters of the nearer and one of the other, as decoders do it."""
    length = values.shape[axis]
    before = tf.gather(values, np.maximum(np.arange(length) - 1, 0), axis=axis)
    after = tf.gather(values, np.minimum(np.arange(length) + 1, length - 1), axis=axis)
    pairs = tf.stack([0.75 * values + 0.25 * before, 0.75 * values + 0.25 * after], axis=axis + 1)
    shape = [-1, *values.shape[1:]]
    shape[axis] = 2 * length
    return tf.reshape(pairs, shape)
