"""Whether a claim holds on some examples: yes, no, or that so few cannot tell.

A share is judged by its 95 % Wilson interval, two things on the same examples by an exact McNemar test at 0.05.
"""

from __future__ import annotations

import enum

import numpy as np

from bench.support.stats import mcnemar, wilson

LEVEL = 0.05
Count = tuple[int, int]
"""How many examples, of how many."""


class Answer(enum.Enum):
    """What can be said of a claim; its value is what the documents have."""

    HOLDS = "yes"
    FAILS = "**no**"
    UNKNOWN = "cannot tell"


def at_most(count: Count, bound: float) -> Answer:
    """Whether a share is at most `bound`: it is if the whole interval is, and it is not if none of the interval is."""
    low, high = wilson(*count)
    if high <= bound:
        return Answer.HOLDS
    return Answer.FAILS if low > bound else Answer.UNKNOWN


def below_by(first: Count, second: Count, gap: float) -> Answer:
    """Whether the first share is lower than the second by at least `gap`, whatever values the intervals leave to both."""
    (low, high), (other_low, other_high) = wilson(*first), wilson(*second)
    if high <= other_low - gap:
        return Answer.HOLDS
    return Answer.FAILS if low > other_high - gap else Answer.UNKNOWN


def fewer(first: np.ndarray, second: np.ndarray) -> Answer:
    """Whether fewer examples are right in the first (N, bool) than in the second (N, bool), which are the same examples."""
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    if mcnemar(only_first, only_second) >= LEVEL:
        return Answer.UNKNOWN
    return Answer.HOLDS if only_first < only_second else Answer.FAILS


def falls(bounds: list[tuple[Count, bool]], bound: float) -> Answer:
    """Whether a robust accuracy is at most `bound`, by upper bounds of it: each with whether all that is required was run.

    Any upper bound that is low enough decides. That none is decides only where nothing is missing.
    """
    answers = [(at_most(count, bound), complete) for count, complete in bounds]
    if any(answer is Answer.HOLDS for answer, _ in answers):
        return Answer.HOLDS
    return Answer.FAILS if (Answer.FAILS, True) in answers else Answer.UNKNOWN


def every(*answers: Answer) -> Answer:
    """Whether all of several claims hold."""
    if Answer.FAILS in answers:
        return Answer.FAILS
    return Answer.UNKNOWN if Answer.UNKNOWN in answers or not answers else Answer.HOLDS


def opposite(answer: Answer) -> Answer:
    return {Answer.HOLDS: Answer.FAILS, Answer.FAILS: Answer.HOLDS}.get(answer, answer)
