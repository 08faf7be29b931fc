"""LINAC refuses what it cannot do: bad settings, keys and images, and fits that diverge; no message shows a key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bench.api import BenchError, UsageError
from defences import linac
from defences.linac import Linac, LinacConfig
from tests.defences.test_linac import IMAGES, KEY, SMALL, UNIT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frequencies": 0}, "frequencies is 0"),
        ({"layers": 0, "representation_layer": 0}, "layers is 0"),
        ({"width": -1}, "width is -1"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"batch_pixels": True}, "batch_pixels is True"),
        ({"representation_layer": 6}, "representation_layer is 6; choose 0 to 4"),
        ({"representation_layer": -1}, "representation_layer is -1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"decay_floor": 1.5}, "decay_floor is 1.5"),
        ({"key_bits": 48}, "key_bits is 48"),
    ],
)
def test_an_impossible_configuration_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LinacConfig(**changes)


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, 1.5, "1383227977468296715", None, True])
def test_a_key_that_is_no_64_bit_integer_is_refused_and_not_shown(key: object) -> None:
    with pytest.raises(UsageError, match="64-bit integer") as caught:
        linac.fit(IMAGES, key)  # type: ignore[arg-type]
    assert str(key) not in str(caught.value) or key in (None, True)


def test_extreme_keys_and_numpy_integers_are_keys() -> None:
    config = LinacConfig(width=16, layers=1, representation_layer=0, epochs=1)
    found = [linac.fit(IMAGES[:1], key, config).representation for key in (-(2**63), 2**63 - 1, np.int64(2**63 - 1))]
    assert not np.array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.parametrize("shape", [(32, 32, 3), (1, 32, 32, 1), (1, 32, 32, 4), (2, 3072)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="×".join(map(str, shape))):
        linac.fit(np.zeros(shape, np.float32), KEY)


def test_a_batch_larger_than_the_image_is_refused() -> None:
    with pytest.raises(UsageError, match="batch_pixels is 32, more than the 16 pixels of a 4×4 image"):
        linac.fit(np.zeros((1, 4, 4, 3), np.float32), KEY)


def test_the_defence_needs_a_key() -> None:
    with pytest.raises(UsageError, match="needs a key"):
        Linac().transform(tf.constant(UNIT), None, {})


def test_a_fit_that_diverges_names_the_images() -> None:
    calm = np.zeros_like(IMAGES[:1])
    wild = np.full_like(calm, 1e25)
    images = np.concatenate([calm, wild, calm, wild])
    config = LinacConfig(width=16, epochs=1)
    with pytest.raises(BenchError, match="diverged to NaN or infinity for images 1, 3 of this batch of 4"):
        linac.fit(images, KEY, config)


def test_a_large_learning_rate_is_an_error_and_never_zeros() -> None:
    with pytest.raises(BenchError, match="diverged to NaN or infinity for images 0, 1, 2, 3"):
        linac.fit(IMAGES, KEY, LinacConfig(learning_rate=1e12, epochs=1))
    in_graph = tf.function(lambda x: Linac(LinacConfig(learning_rate=1e12, epochs=1)).transform(x, KEY, {}))
    with pytest.raises(tf.errors.UnknownError, match="diverged to NaN or infinity for images 0, 1, 2, 3"):
        in_graph(UNIT)


def test_an_input_that_is_not_finite_is_named() -> None:
    images = IMAGES.copy()
    images[2, 5, 5, 1] = np.nan
    with pytest.raises(BenchError, match="NaN or infinite values in image 2 of this batch of 4"):
        linac.fit(images, KEY, SMALL)
