"""Statistics of examples: the interval of a share, how likely so many successes are, and whether two defences differ."""

from __future__ import annotations

import math

import numpy as np

Z95 = 1.959963984540054


def wilson(successes: int, trials: int, z: float = Z95) -> tuple[float, float]:
    """The Wilson score interval (95 % by default) of a share, as two shares; (0, 1) when nothing was tried."""
    if trials == 0:
        return (0.0, 1.0)
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return (max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))


def lost(before: int, after: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of how far a share falls when successes become fewer of the same: paired, example by example.

    What is left is part of what was there, so that the difference is itself a share of the trials.
    """
    if not 0 <= after <= before <= trials:
        raise ValueError(f"{after} of {before} of {trials} are no part of one another")
    return wilson(before - after, trials)


def at_least(successes: int, trials: int, share: float) -> float:
    """The exact probability of so many successes or more in independent trials that succeed with this probability."""
    if successes <= 0:
        return 1.0
    if share <= 0:
        return 0.0
    if share >= 1:
        return float(successes <= trials)
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, trials + 1)))])
    k = np.arange(successes, trials + 1)
    chances = factorial[trials] - factorial[k] - factorial[trials - k] + k * np.log(share)
    return min(1.0, float(np.exp(chances + (trials - k) * np.log1p(-share)).sum()))


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p: how likely so uneven a split is if a coin decided each example that tells the two apart."""
    total, few = only_first + only_second, min(only_first, only_second)
    if total == 0:
        return 1.0
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total + 1)))])
    k = np.arange(few + 1)
    chances = factorial[total] - factorial[k] - factorial[total - k] - total * np.log(2)
    return min(1.0, 2 * float(np.exp(chances).sum()))
