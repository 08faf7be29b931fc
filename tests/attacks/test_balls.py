"""The balls: nothing leaves them, and the closed forms are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.parts import draws, sums
from bench import norms

SHAPE = [32, 32, 3]
BALLS = {name: norms.named(name).ball() for name in ("linf", "l2")}


def distance(norm: str, images: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """In float64, as a referee would measure it."""
    delta = (images.astype(np.float64) - origin.astype(np.float64)).reshape(len(images), -1)
    return {"linf": np.abs(delta).max(axis=1), "l2": np.sqrt((delta**2).sum(axis=1))}[norm]


def edge_images(seed: int, count: int = 3) -> np.ndarray:
    """Images of all zeros, all ones, and a mix of values at, just inside and well inside the edges."""
    generator = np.random.default_rng(seed)
    edges = np.array([0.0, 1.0, 2.0**-24, 1 - 2.0**-24, 0.5, 1 / 3, 1 / 255, 254 / 255], np.float32)
    mixed = generator.choice(edges, size=(count, *SHAPE))
    return np.concatenate([np.zeros((1, *SHAPE)), np.ones((1, *SHAPE)), mixed]).astype(np.float32)


@given(
    norm=st.sampled_from(list(BALLS)),
    epsilon=st.one_of(st.sampled_from([0.0, 8 / 255, 0.5, 1.0]), st.floats(1e-6, 60.0)),
    size=st.floats(1e-6, 1e4),
    constant=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=150, deadline=None)
def test_projection_never_leaves_the_ball_or_the_range(
    norm: Any, epsilon: float, size: float, constant: bool, seed: int
) -> None:
    origin = edge_images(seed)
    generator = np.random.default_rng(seed)
    step = generator.normal(size=origin.shape) * size
    if constant:  # every value rounds in the same direction: the worst case for a sum of squares
        step = np.full_like(step, size)
    projected = (
        BALLS[norm]
        .project(tf.constant((origin + step).astype(np.float32)), tf.constant(origin), tf.constant(epsilon, tf.float32))
        .numpy()
    )
    assert projected.min() >= 0
    assert projected.max() <= 1
    assert distance(norm, projected, origin).max() <= epsilon + 1e-6


@given(norm=st.sampled_from(list(BALLS)), epsilon=st.floats(0, 2), seed=st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_random_starts_are_inside(norm: Any, epsilon: float, seed: int) -> None:
    origin = edge_images(seed)
    seeds = np.arange(2 * len(origin), dtype=np.int32).reshape(-1, 2)
    start = BALLS[norm].random_start(tf.constant(origin), tf.constant(seeds), tf.constant(epsilon, tf.float32))
    assert 0 <= start.numpy().min() <= start.numpy().max() <= 1
    assert distance(norm, start.numpy(), origin).max() <= epsilon + 1e-6


@pytest.mark.parametrize("ball", BALLS.values(), ids=list(BALLS))
def test_steepest_has_size_one_and_gains_the_dual_norm(ball: Any) -> None:
    gradient = tf.constant(np.random.default_rng(0).normal(size=(4, *SHAPE)).astype(np.float32) * 1e-25)
    gradient = tf.concat([gradient, tf.ones_like(gradient[:1]), tf.zeros_like(gradient[:1])], axis=0)
    direction = ball.steepest(gradient)
    np.testing.assert_allclose(ball.size(direction)[:5], 1.0, rtol=1e-5)
    assert not direction[5].numpy().any()
    gain = np.einsum("bhwc,bhwc->b", direction.numpy().astype(float), gradient.numpy().astype(float))
    np.testing.assert_allclose(gain[4], ball.dual(gradient)[4], rtol=1e-5)


def test_a_surface_draw_has_size_one_and_an_inside_draw_is_uniform() -> None:
    seeds = tf.constant(np.random.default_rng(0).integers(-(2**31), 2**31, size=(4000, 2)).astype(np.int32))
    for ball in BALLS.values():
        surface = tf.function(ball.surface)(seeds, [2, 1, 1])
        np.testing.assert_allclose(ball.size(surface), 1.0, rtol=1e-5)
        # In two dimensions the size of a uniform draw from the unit ball has the distribution r².
        sizes = np.sort(ball.size(tf.function(ball.inside)(seeds, [2, 1, 1])).numpy())
        np.testing.assert_allclose(sizes**2, np.linspace(0, 1, len(sizes)), atol=0.04)


def test_sums_do_not_depend_on_the_batch() -> None:
    values = tf.constant(np.random.default_rng(0).normal(size=(9, 31, 7, 3)).astype(np.float32))
    whole = sums.image_sum(values).numpy()
    np.testing.assert_allclose(whole, values.numpy().astype(float).sum(axis=(1, 2, 3)), rtol=1e-4)
    for row in range(9):
        assert sums.image_sum(values[row : row + 1]).numpy()[0] == whole[row]


def test_folded_seeds_differ_and_draws_belong_to_the_example() -> None:
    seeds = np.array([[1, 2], [1, 3], [-5, 7]], np.int32)
    folded = np.concatenate([draws.fold(seeds, number) for number in range(50)])
    assert len(np.unique(folded, axis=0)) == 150
    assert folded.dtype == np.int32
    whole = draws.uniform(tf.constant(seeds), [5]).numpy()
    np.testing.assert_array_equal(draws.uniform(tf.constant(seeds[2:]), [5]).numpy()[0], whole[2])
