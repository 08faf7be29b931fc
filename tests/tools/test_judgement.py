"""Claims are judged by intervals and paired tests, and there is a third answer."""

from __future__ import annotations

import numpy as np
import pytest

from tools.judgement import Answer, Count, at_most, below_by, every, falls, fewer, opposite

YES, NO, UNKNOWN = Answer.HOLDS, Answer.FAILS, Answer.UNKNOWN


@pytest.mark.parametrize(
    ("count", "answer"),
    [
        ((0, 500), YES),  # 0.0 to 0.8 %
        ((14, 500), YES),  # 1.7 to 4.6 %
        ((0, 50), UNKNOWN),  # 0.0 to 7.1 %: none of fifty is no proof of five percent
        ((2, 50), UNKNOWN),  # 1.1 to 13.5 %
        ((3, 50), UNKNOWN),  # 2.1 to 16.2 %: above it as far as it goes, and still
        ((47, 500), NO),  # 7.1 to 12.3 %
        ((30, 50), NO),
        ((0, 0), UNKNOWN),
    ],
)
def test_a_share_against_a_bound(count: Count, answer: Answer) -> None:
    assert at_most(count, 0.05) is answer


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [((27, 100), (6438, 10_000), YES), ((40, 100), (6438, 10_000), UNKNOWN), ((62, 100), (6438, 10_000), NO)],
)
def test_two_shares_and_a_gap(first: Count, second: Count, answer: Answer) -> None:
    assert below_by(first, second, 0.2) is answer


def right(*places: int) -> np.ndarray:
    return np.isin(np.arange(50), places)


@pytest.mark.parametrize(
    ("only_first", "only_second", "answer"),
    [(0, 5, UNKNOWN), (0, 6, YES), (6, 0, NO), (0, 0, UNKNOWN), (5, 19, YES), (19, 5, NO), (8, 12, UNKNOWN)],
)
def test_two_on_the_same_examples(only_first: int, only_second: int, answer: Answer) -> None:
    """Five to none has p = 2 / 32, six to none 2 / 64; whatever both get right does not matter."""
    both = range(30, 40)
    first = right(*range(only_first), *both)
    second = right(*range(only_first, only_first + only_second), *both)
    assert fewer(first, second) is answer
    assert fewer(second, first) is opposite(answer)


@pytest.mark.parametrize(
    ("bounds", "answer"),
    [
        ([((2, 50), True), ((0, 500), False)], YES),  # an upper bound needs no coverage to be low enough
        ([((47, 500), True)], NO),
        ([((47, 500), False)], UNKNOWN),  # what is missing may lower it
        ([((2, 50), True), ((47, 500), False)], UNKNOWN),
        ([], UNKNOWN),
    ],
)
def test_whether_a_defence_falls(bounds: list[tuple[Count, bool]], answer: Answer) -> None:
    assert falls(bounds, 0.05) is answer


def test_several_claims_together() -> None:
    assert every(YES, YES) is YES
    assert every(YES, UNKNOWN) is UNKNOWN
    assert every(UNKNOWN, NO, YES) is NO
    assert every() is UNKNOWN
    assert [opposite(one) for one in (YES, NO, UNKNOWN)] == [NO, YES, UNKNOWN]
