"""The differentiable form of JPEG: about what the encoder and decoder give, with gradients that see the quantisation."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from bench.data import datasets
from defences import jpeg, smooth_jpeg


@pytest.fixture(scope="module")
def images() -> tf.Tensor:
    return tf.constant(datasets.load("cifar10").examples(20).unit())


@pytest.mark.parametrize("halved", [True, False])
@pytest.mark.parametrize("quality", [10, 23, 75])
def test_with_plain_rounding_it_is_what_the_library_makes(images: tf.Tensor, quality: int, halved: bool) -> None:
    library = jpeg.compress(images, quality, halved).numpy()
    plain = smooth_jpeg.compressed(images, quality, halved, tf.round).numpy()
    # Nearly everywhere within a level of 255; where a coefficient lies half way, the two may round it differently.
    assert np.abs(plain - library).mean() < 1.1 / 255
    smooth = smooth_jpeg.compressed(images, quality, halved).numpy()
    assert np.abs(smooth - library).mean() < 2 / 255
    assert np.abs(smooth - library).mean() < 0.3 * np.abs(images - library).mean()


def test_the_slope_of_its_rounding_is_that_of_finite_differences() -> None:
    values = tf.constant(np.linspace(-1.4, 1.4, 57), tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(values)
        rounded = smooth_jpeg.smooth_round(values)
    slope = tape.gradient(rounded, values).numpy()
    step = 1e-6
    away = np.abs(values.numpy() % 1 - 0.5) > 1e-3  # at a half it jumps from one whole number to the next
    numeric = (smooth_jpeg.smooth_round(values + step) - smooth_jpeg.smooth_round(values - step)).numpy() / (2 * step)
    np.testing.assert_allclose(slope[away], numeric[away], atol=1e-5)
    assert slope.max() == pytest.approx(0.75, abs=0.05)
    assert slope[np.abs(values.numpy()) < 1e-9] == 0


def test_a_coefficient_that_is_lost_has_no_gradient_and_one_half_way_has() -> None:
    """What the identity cannot tell: which changes of an image the compression lets through."""
    row = smooth_jpeg.cosines()

    def block(share: float) -> np.ndarray:
        wave = np.outer(row[0], row[1]) * share * smooth_jpeg.steps(smooth_jpeg.LUMINANCE, 10)[0, 1]
        return np.repeat(((128 + wave) / 255)[None, ..., None], 3, axis=3).astype(np.float32)

    def slope(share: float) -> float:
        image = tf.constant(np.tile(block(share), (1, 2, 2, 1)))
        along = tf.constant(np.tile(block(1.0) - block(0.0), (1, 2, 2, 1)))
        with tf.GradientTape() as tape:
            tape.watch(image)
            value = tf.reduce_sum(smooth_jpeg.compressed(image, 10, True) * along)
        return float(tf.reduce_sum(tape.gradient(value, image) * along) / tf.reduce_sum(along * along))

    assert abs(slope(0.02)) < 0.01
    assert slope(0.45) > 0.4


@pytest.mark.parametrize("shape", [(30, 21), (16, 16), (8, 27)])
@pytest.mark.parametrize("halved", [True, False])
def test_images_need_not_be_whole_blocks(images: tf.Tensor, shape: tuple[int, int], halved: bool) -> None:
    image = images[:, : shape[0], : shape[1]]
    found = smooth_jpeg.compressed(image, 50, halved)
    assert found.shape == image.shape
    # At the edges an encoder fills up blocks in its own way.
    assert np.abs(found - jpeg.compress(image, 50, halved)).mean() < 3 / 255
