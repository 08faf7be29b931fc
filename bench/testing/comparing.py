"""How arrays are compared: bit by bit, up to rounding, and a gradient with finite differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

STEPS = (3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
"""By how much every value is moved. Not more: a step of eight bits would hide behind a larger one. The small ones are for
functions that bend sharply; what is rounded to float32 is too coarse for still smaller ones."""
DIRECTIONS = 4
NEAR = 1e-3
MOST = 0.99


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have the same bits, NaN or not."""
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays are the same but for rounding, which may tip a few values of what is quantised."""
    scale = max(float(np.abs(one).max(initial=0)), 1e-6)
    return one.shape == other.shape and float(np.mean(np.abs(one - other) <= NEAR * scale)) >= MOST


def off_from_differences(
    function: Callable[[np.ndarray], np.ndarray],
    images: np.ndarray,
    gradient: np.ndarray,
    upstream: np.ndarray,
    tolerance: float,
) -> float:
    """How far the gradient of sum(upstream · function(images)) is from central differences, as a share of its length.

    Along random signs the differences of the right gradient and of another are as far apart as the two are, and all
    values move at once, which float32 resolves. It is the first of several steps that is within the tolerance, or
    the best.
    """
    generator, length = np.random.default_rng(3), max(float(np.linalg.norm(gradient.astype(np.float64))), 1e-30)
    signs = np.array([-1.0, 1.0], np.float32)
    directions = [generator.choice(signs, size=images.shape) for _ in range(DIRECTIONS)]
    best = np.inf
    for step in STEPS:
        errors = []
        for direction in directions:
            ahead, behind = images + np.float32(step) * direction, images - np.float32(step) * direction
            moved = (ahead.astype(np.float64) - behind) / (2 * step)  # what float32 made of the step
            change = np.sum((function(ahead).astype(np.float64) - function(behind)) * upstream) / (2 * step)
            errors.append(abs(change - np.sum(gradient * moved)))
        best = min(best, float(np.sqrt(np.mean(np.square(errors))) / length))
        if best <= tolerance:
            break
    return best
