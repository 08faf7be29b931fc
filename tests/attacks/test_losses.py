"""Losses against their formulas in NumPy, and gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from attacks.parts import losses
from bench.api import ModelSource
from tests.attacks.conftest import SHAPE, Network

LOGITS = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32) * 3
LABELS = np.random.default_rng(1).integers(0, 6, size=20).astype(np.int32)
TARGETS = (LABELS + 1 + np.random.default_rng(2).integers(0, 5, size=20).astype(np.int32)) % 6


def by_hand(name: str) -> np.ndarray:
    values = []
    for z, y, t in zip(LOGITS.astype(float), LABELS, TARGETS, strict=True):
        top = np.sort(z)[::-1]
        margin = z[y] - max(z[k] for k in range(6) if k != y)
        logsum = np.log(np.exp(z).sum())
        values.append(
            {
                "margin": margin,
                "ce": z[y] - logsum,
                "dlr": margin / (top[0] - top[2]),
                "targeted margin": z[y] - z[t],
                "targeted ce": logsum - z[t],
                "targeted dlr": (z[y] - z[t]) / (top[0] - 0.5 * (top[2] + top[3])),
            }[name]
        )
    return np.array(values)


@pytest.mark.parametrize("name", list(losses.UNTARGETED))
def test_untargeted_losses(name: str) -> None:
    np.testing.assert_allclose(losses.UNTARGETED[name](LOGITS, LABELS), by_hand(name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(losses.TARGETED))
def test_targeted_losses(name: str) -> None:
    found = losses.TARGETED[name](LOGITS, LABELS, TARGETS)
    np.testing.assert_allclose(found, by_hand(f"targeted {name}"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(losses.UNTARGETED))
def test_a_source_gives_the_gradient_of_the_loss(name: str) -> None:
    network = Network(classes=6)
    source = ModelSource("network", network)
    generator = np.random.default_rng(3)
    images = tf.constant(generator.uniform(size=(2, *SHAPE)), tf.float32)
    direction = tf.constant(generator.normal(size=(2, *SHAPE)), tf.float32)
    labels = tf.constant([1, 4])
    loss = losses.UNTARGETED[name]
    found = source.gradient(loss, images, labels)
    np.testing.assert_allclose(found.logits, network(images), rtol=1e-4, atol=1e-5)
    up, down = (loss(network(images + sign * 1e-3 * direction), labels) for sign in (1, -1))
    slope = tf.reduce_sum(found.gradient * direction, axis=[1, 2, 3])
    np.testing.assert_allclose((up - down) / 2e-3, slope, rtol=0.02, atol=0.02)
