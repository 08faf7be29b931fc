"""Items made ahead, in a thread: the same items, the same errors, and no thread left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bench.support.prefetch import prefetched


def test_the_same_items_in_their_order() -> None:
    assert list(prefetched(range(20), ahead=3)) == list(range(20))
    assert list(prefetched([])) == []


def test_they_are_made_ahead_but_not_far() -> None:
    made: list[int] = []
    third = threading.Event()

    def items() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            if i == 2:
                third.set()
            yield i

    given = prefetched(items(), ahead=2)
    assert next(given) == 0
    assert third.wait(5), "the next ones are made while nobody asks"
    assert len(made) <= 4
    given.close()
    assert len(made) <= 5, "nothing more is made for nobody"


def test_an_error_comes_through_after_what_was_made() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no second one")

    given = prefetched(items())
    assert next(given) == 1
    with pytest.raises(ValueError, match="no second one"):
        next(given)


def test_no_thread_is_left_behind() -> None:
    given = prefetched(iter(range(1000)), ahead=1)
    next(given)
    given.close()
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())
