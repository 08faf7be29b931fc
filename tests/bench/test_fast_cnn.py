"""The small fast network: its layers, its cost, its first layer from the training images, and what it refuses."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from bench.api import Shape, UsageError
from bench.models.architecture import Architecture
from bench.support import devices

devices.configure()
RANDOM = np.random.default_rng(0)


def fast(**settings: Any) -> Architecture:
    return Architecture.named("fast-cnn", settings)


def multiplications(model: keras.Model, images: np.ndarray) -> int:
    """Of a model's convolutions and last layer, counted from the shapes of what each layer gives."""
    total = 0
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D | keras.layers.Dense):
            output = keras.Model(model.input, layer.output)(images[:1])
            total += layer.kernel.shape[-1] * int(np.prod(layer.kernel.shape[:-1])) * int(np.prod(output.shape[1:-1]))
    return total


@pytest.mark.parametrize(("settings", "shape", "millions"), [
    ({}, (32, 32, 3), 54.22),
    ({"widths": "64+256+256"}, (32, 32, 3), 118.15),
    ({"front": "learned"}, (32, 32, 128), 92.01),
    ({"front": "pixelwise"}, (32, 32, 128), 88.80),
    ({"widths": (4, 8)}, (9, 14, 3), None)])  # fmt: skip
def test_the_cost_is_what_the_layers_multiply(settings: dict[str, Any], shape: Shape, millions: float | None) -> None:
    network = fast(**settings)
    cost = network.cost(shape, 10)
    assert cost == multiplications(network.build(shape, 10), np.zeros((1, *shape), np.float32))
    assert millions is None or cost / 1e6 == pytest.approx(millions, abs=0.01)


def test_the_first_layer_whitens_the_training_images() -> None:
    smooth = RANDOM.normal(size=(400, 11, 11, 3)).cumsum(axis=1).cumsum(axis=2)  # neighbours are alike
    images = np.clip(128 + 20 * smooth / smooth.std(), 0, 255).astype(np.uint8)
    network = fast(widths=(4, 4, 4))
    model = network.build((11, 11, 3), 3)
    network.prepare(model, images)
    layer = model.get_layer("whitening")
    given = layer(images.astype(np.float32) / 255).numpy().reshape(-1, 24).astype(np.float64)
    assert np.allclose(given[:, 12:], -given[:, :12], atol=1e-3), "the other half is the negative"
    assert np.abs(given.mean(axis=0)).max() < 0.1
    covariance = np.cov(given[:, :12].T)
    variances = np.diag(covariance)
    assert np.abs(covariance - np.diag(variances)).max() < 0.02
    assert 0.5 < variances.min() <= variances.max() < 1.02  # the floor under the variances leaves the smallest below 1
    assert not layer.trainable_variables
    assert not any(variable.path.startswith("whitening") for variable in model.trainable_variables)


def test_convolutions_begin_by_handing_their_input_on() -> None:
    model = fast(widths=(32, 16)).build((12, 12, 3), 3)
    channels = RANDOM.normal(size=(2, 5, 5, 24)).astype(np.float32)
    given = model.get_layer("block-0-conv-0")(channels).numpy()
    assert np.array_equal(given[..., :24], channels)
    assert np.abs(given[..., 24:]).max() > 0.1
    narrower = model.get_layer("block-1-conv-0")(RANDOM.normal(size=(1, 5, 5, 32)).astype(np.float32)).numpy()
    assert narrower.shape[-1] == 16


def test_it_is_the_same_network_when_it_is_built_again() -> None:
    keras.utils.set_random_seed(3)
    one = fast(widths=(8, 8)).build((8, 8, 3), 3)
    keras.utils.set_random_seed(3)
    other = fast(widths=(8, 8)).build((8, 8, 3), 3)
    assert [v.path for v in one.weights] == [v.path for v in other.weights]
    assert all(np.array_equal(a, b) for a, b in zip(one.get_weights(), other.get_weights(), strict=True))


@pytest.mark.parametrize(("settings", "message"), [
    ({"widths": ()}, "widths"), ({"widths": (0,)}, "widths"), ({"widths": (4,) * 9}, "widths"),
    ({"front": "fixed"}, "choose whitening, learned, pixelwise"), ({"front_widths": (8,)}, "front_widths")])  # fmt: skip
def test_settings_that_make_no_network(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fast(**settings)


@pytest.mark.parametrize(("shape", "message"), [
    ((32, 32, 128), "128 channels; choose front=learned"), ((8, 8, 3), "8×8 cannot be halved 3 times")])  # fmt: skip
def test_inputs_it_cannot_read(shape: Shape, message: str) -> None:
    for ask in (fast().build, fast().cost):
        with pytest.raises(UsageError, match=message):
            ask(shape, 10)


def test_a_wider_one_than_is_taken_from_elsewhere() -> None:
    with pytest.raises(UsageError, match="widths is above 2048"):
        fast(widths=(8, 4096)).check_limits()
