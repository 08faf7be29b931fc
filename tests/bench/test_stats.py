"""The statistics behind the tables, against their definitions."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import pytest

from bench.support.stats import Z95, lost, mcnemar, wilson


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (1, 20), (10, 20), (20, 20), (437, 1000), (9999, 10_000)])
def test_a_wilson_interval_ends_where_the_share_is_just_that_unlikely(successes: int, trials: int) -> None:
    share, bounds = successes / trials, wilson(successes, trials)
    assert bounds[0] <= share <= bounds[1]
    for bound in bounds:
        if 0 < bound < 1:
            assert abs(share - bound) == pytest.approx(Z95 * math.sqrt(bound * (1 - bound) / trials), rel=1e-9)


def test_nothing_is_known_of_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_what_is_lost_of_the_same_examples_is_a_share_of_them() -> None:
    """Counted example by example, it is the interval of the share that is right before and wrong after."""
    before, after = [True] * 30 + [False] * 20, [True] * 4 + [False] * 46
    both = sum(one and not other for one, other in zip(before, after, strict=True))
    assert lost(30, 4, 50) == wilson(both, 50)
    assert lost(30, 30, 50) == wilson(0, 50)
    with pytest.raises(ValueError, match="no part of one another"):
        lost(4, 30, 50)


@pytest.mark.parametrize(("one", "other"), [(0, 0), (5, 5), (0, 4), (12, 3), (40, 61), (300, 200)])
def test_mcnemar_is_exact(one: int, other: int) -> None:
    total, few = one + other, min(one, other)
    exact = min(Fraction(1), 2 * Fraction(sum(comb(total, k) for k in range(few + 1)), 2**total))
    assert mcnemar(one, other) == pytest.approx(float(exact), rel=1e-9)
