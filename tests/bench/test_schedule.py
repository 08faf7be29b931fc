"""What a run does next, whatever the sizes of shards, the drivers, and the order in which answers come."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.evaluation.schedule import BoardSchedule, Work
from bench.store.schema import ALL, SURVIVORS


class Store:
    """What drivers share: rows by cell, and claims."""

    def __init__(self, right: np.ndarray, inside: list[bool]) -> None:
        self.right, self.inside = right, inside
        self.rows: list[set[int]] = [set() for _ in inside]
        self.claimed: list[set[int]] = [set() for _ in inside]

    def broken(self) -> set[int]:
        return {e for c, rows in enumerate(self.rows) if self.inside[c] for e in rows if not self.right[c, e]}


class Driver:
    """One run on the store, which has several shards in hand and finishes them in any order."""

    def __init__(self, store: Store, scope: str, size: int) -> None:
        self.store, self.size, self.hand = store, size, list[Work]()
        self.schedule = BoardSchedule(store.right.shape[1], store.inside, scope)
        self.cells = range(len(store.inside))
        self.refresh()

    def refresh(self) -> None:
        self.schedule.refresh(self.store.rows, self.store.broken())

    def take(self) -> None:
        if work := self.schedule.next(self.cells, self.size):
            assert 0 < len(work.examples) <= self.size
            here = self.store.rows[work.cell] | self.store.claimed[work.cell]
            free = [example for example in work.examples if example not in here]
            self.schedule.taken(work, free)
            if free:
                self.store.claimed[work.cell] |= set(free)
                self.hand.append(Work(work.cell, tuple(free)))
        elif not self.hand:
            self.refresh()

    def finish(self, place: int) -> None:
        work = self.hand.pop(place % len(self.hand))
        self.store.rows[work.cell] |= set(work.examples)
        self.store.claimed[work.cell] -= set(work.examples)
        self.schedule.finished(
            work.cell, work.examples, [e for e in work.examples if not self.store.right[work.cell, e]]
        )

    def die(self) -> None:
        for work in self.hand:
            self.store.claimed[work.cell] -= set(work.examples)

    @property
    def at_the_end(self) -> bool:
        return not self.hand and all(self.schedule.complete(cell) for cell in self.cells)


def expected(right: np.ndarray, inside: list[bool], scope: str) -> list[set[int]]:
    """By the definition, example by example."""
    rows: list[set[int]] = [set() for _ in inside]
    for example in range(right.shape[1]):
        standing = True
        for cell in [c for c, own in enumerate(inside) if own]:
            if standing or scope == ALL:
                rows[cell].add(example)
                standing &= bool(right[cell, example])
        for cell in [c for c, own in enumerate(inside) if not own]:
            if standing or scope == ALL:
                rows[cell].add(example)
    return rows


@given(st.integers(0, 10**6), st.sampled_from([ALL, SURVIVORS]), st.data())
def test_every_way_leads_to_the_same_rows(seed: int, scope: str, data: st.DataObject) -> None:
    random = np.random.default_rng(seed)
    n_cells, n = random.integers(1, 6), int(random.integers(1, 14))
    right = random.random((n_cells, n)) < random.random()
    inside = [True, *(bool(own) for own in random.random(n_cells - 1) < 0.8)]
    store = Store(right, inside)
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    drivers = [Driver(store, scope, size) for size in sizes]
    for _ in range(2000):
        place = int(random.integers(len(drivers)))
        driver, what = drivers[place], random.random()
        if what < 0.03:  # killed, and started again with another size of shards
            driver.die()
            drivers[place] = Driver(store, scope, int(random.integers(1, 7)))
        elif what < 0.5 and len(driver.hand) < 3:
            driver.take()
        elif driver.hand:
            driver.finish(int(random.integers(3)))
        else:
            driver.refresh()
        if all(d.at_the_end for d in drivers):
            break
    else:
        raise AssertionError("the drivers never came to an end")
    assert store.rows == expected(right, inside, scope)


def test_full_shards_come_first_and_then_the_earliest_cell() -> None:
    schedule = BoardSchedule(10, [True, True], SURVIVORS)
    assert schedule.next([0, 1], 4) == Work(0, (0, 1, 2, 3))
    schedule.taken(Work(0, (0, 1, 2, 3)), [0, 1, 2, 3])
    schedule.taken(Work(0, (4, 5, 6, 7)), [4, 5, 6, 7])
    schedule.finished(0, [0, 1, 2, 3], [2])
    assert schedule.next([0, 1], 4) == Work(1, (0, 1, 3)), "three of the next cell, for of the first there are two"
    assert schedule.next([0], 4) == Work(0, (8, 9))
    assert schedule.next([1], 2) == Work(1, (0, 1))


def test_a_cell_that_fails_is_left_out() -> None:
    schedule = BoardSchedule(4, [True, True, True], SURVIVORS)
    schedule.finished(0, range(4), [])
    schedule.taken(Work(1, (0, 1)), [0, 1])
    schedule.failed(1, [0, 1])
    assert schedule.next([1, 2], 4) == Work(1, (2, 3))
    schedule.give_up(1)
    assert schedule.next([1, 2], 4) == Work(2, (0, 1, 2, 3))
    assert not schedule.complete(1)
    schedule.finished(2, range(4), range(4))
    assert schedule.complete(1), "what another attack has broken needs no row"


def test_unperturbed_images_are_all_judged_also_those_that_imported_attacks_have_broken() -> None:
    schedule = BoardSchedule(4, [True, True, True], SURVIVORS)
    schedule.refresh([set(), set(), {2, 3}], {3})
    assert schedule.next([0, 1, 2], 4) == Work(0, (0, 1, 2, 3))
    schedule.finished(0, range(4), [0])
    assert schedule.next([0, 1, 2], 4) == Work(1, (1, 2))


def test_what_somebody_else_has_is_waited_for_and_looked_at_again() -> None:
    schedule = BoardSchedule(4, [True, True], SURVIVORS)
    schedule.taken(Work(0, (0, 1, 2, 3)), [2, 3])
    assert schedule.waiting([0])
    schedule.finished(0, [2, 3], [3])
    assert schedule.next([0, 1], 4) == Work(1, (2,))
    schedule.refresh([{0, 1, 2, 3}, set()], {0, 3})
    assert not schedule.waiting([0, 1])
    assert schedule.next([0, 1], 4) == Work(1, (1, 2))


def test_what_is_expected_goes_by_the_shares_that_stand() -> None:
    schedule = BoardSchedule(10, [True, True, True], SURVIVORS)
    np.testing.assert_allclose(schedule.expected([1.0, 0.5, 0.2]), [10, 5, 2])
    schedule.finished(0, range(4), [0, 1])
    # Two of the four go on from the second cell, six are at the first.
    np.testing.assert_allclose(schedule.expected([1.0, 0.5, 0.2]), [6, 2 + 3, 2 * 0.4 + 6 * 0.2])
    np.testing.assert_allclose(BoardSchedule(10, [True, True], ALL).expected([1.0, 0.5]), [10, 10])
    last = BoardSchedule(2, [True, True], SURVIVORS)
    last.finished(0, [0, 1], [1])
    np.testing.assert_allclose(last.expected([1.0, 0.0]), [0, 1], err_msg="what stands against expectation is counted")
