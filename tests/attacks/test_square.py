"""Square's moves in L2 beside a plain port of the published algorithm (Andriushchenko et al., 2020, algorithm 3)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from bench import norms

SHAPE = (12, 10, 3)


def hills(height: int, width: int) -> np.ndarray:
    """Rectangles one over the other around the middle, the r-th of height 1/(r+1)², over their length."""
    found = np.zeros((height, width))
    top, left = height // 2, width // 2
    for ring in range(max(height // 2, width // 2) + 1):
        rows = slice(max(top - ring, 0), min(top + ring + 1, height))
        columns = slice(max(left - ring, 0), min(left + ring + 1, width))
        found[rows, columns] += 1 / (ring + 1) ** 2
    return found / np.sqrt((found**2).sum())


def published(
    image: np.ndarray,
    origin: np.ndarray,
    epsilon: float,
    into: tuple[int, int],
    emptied: tuple[int, int],
    side: int,
    turned: bool,
    signs: np.ndarray,
) -> np.ndarray:
    """One proposal for one image (H×W×C), channel by channel; `into` and `emptied` are the corners of two windows."""
    delta = image.astype(np.float64) - origin
    first = (slice(into[0], into[0] + side), slice(into[1], into[1] + side))
    second = (slice(emptied[0], emptied[0] + side), slice(emptied[1], emptied[1] + side))
    bump = np.concatenate([hills(side // 2, side), -hills(side - side // 2, side)])
    bump /= np.sqrt((bump**2).sum())
    if turned:
        bump = bump.T
    unused = max(epsilon**2 - (delta**2).sum(), 0)
    both = np.zeros(image.shape[:2], bool)
    both[first] = both[second] = True
    new = delta.copy()
    new[second] = 0
    for channel in range(image.shape[2]):
        window = delta[first][..., channel]
        hill = signs[channel] * bump + window / (1e-12 + np.sqrt((window**2).sum()))
        mass = unused / image.shape[2] + (delta[both][:, channel] ** 2).sum()
        new[..., channel][first] = hill / (1e-12 + np.sqrt((hill**2).sum())) * math.sqrt(mass)
    return np.clip(origin + epsilon * new / np.sqrt((new**2).sum()), 0, 1)


@pytest.mark.parametrize("side", [3, 5, 9])
@pytest.mark.parametrize("used", [0.3, 1.0], ids=["some of the ball left", "the whole ball used"])
def test_a_move_in_l2_is_the_published_one_channel_by_channel(side: int, used: float) -> None:
    moves = norms.named("l2").ball().square_moves(SHAPE)
    generator = np.random.default_rng(side)
    count, epsilon = 8, 0.5
    origin = generator.uniform(0.3, 0.7, size=(count, *SHAPE)).astype(np.float32)
    # Channels of very unequal mass: where it is summed over them, the strong one's goes to the weak ones.
    delta = generator.normal(size=(count, *SHAPE)) * [1.0, 0.3, 0.02]
    delta *= used * epsilon / np.sqrt((delta**2).sum(axis=(1, 2, 3), keepdims=True))
    images = (origin + delta).astype(np.float32)
    drawn = generator.uniform(size=(count, moves.draws())).astype(np.float32)
    found = moves.propose(
        tf.constant(images), tf.constant(origin), tf.constant(epsilon), tf.constant(drawn), tf.constant(side)
    ).numpy()
    for number in range(count):
        down, across, down2, across2, turn, *signs = drawn[number]
        corner = (int(down * (SHAPE[0] - side + 1)), int(across * (SHAPE[1] - side + 1)))
        other = (int(down2 * (SHAPE[0] - side + 1)), int(across2 * (SHAPE[1] - side + 1)))
        colour = np.where(np.array(signs) < 0.5, -1.0, 1.0)
        wanted = published(images[number], origin[number], epsilon, corner, other, side, turn < 0.5, colour)
        np.testing.assert_allclose(found[number], wanted, atol=2e-6)
