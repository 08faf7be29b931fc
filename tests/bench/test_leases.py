"""Claims on both stores: no shard twice, none lost, whatever becomes of a driver or of a clock."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.store import leases, schema, writer
from bench.store.database import open_database
from bench.store.leases import Claims
from tests.stores import a_board, a_cell, shard, shard_of


def test_a_shard_is_in_one_pair_of_hands(database: Database) -> None:
    key = a_cell(database, a_board(database, 10), "pgd", "s")
    one, other = Claims(database), Claims(database)
    assert one.take(key, range(4))
    assert not other.take(key, range(4))
    assert other.take(key, range(2, 6)) == [4, 5], "another shard size: what is free of it"
    assert other.take(key, range(4, 8))
    assert one.take(key, range(4)), "one's own claim is no obstacle"
    assert leases.waiting_for(database, [key]) == 2
    assert writer.record_shard(database, key, shard(0, [True] * 4), 10)
    assert not other.take(key, range(4)), "stored"
    other.release()
    assert leases.waiting_for(database, [key]) == 0
    assert one.take(key, range(4, 8))


def elsewhere(claims: Claims) -> None:
    """As if the driver were on another machine: nobody here can see whether it lives."""
    claims.owner = f"another-machine/1/1/{claims.owner[-8:]}"


def test_a_claim_of_another_machine_ends_by_itself_and_is_taken_over(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = a_cell(database, a_board(database, 4), "pgd", "s")
    lost, heir = Claims(database), Claims(database)
    elsewhere(lost)
    monkeypatch.setattr(leases, "SECONDS", 0.4)
    assert lost.take(key, range(2))
    assert not heir.take(key, range(2))
    time.sleep(0.5)
    assert heir.take(key, range(2))
    assert writer.record_shard(database, key, shard(0, [True, True]), 4)
    assert not writer.record_shard(database, key, shard(0, [False, True]), 4), "the lost driver comes back: too late"
    with database.connect() as connection:
        row = connection.execute(sa.select(schema.cell)).one()
        assert (row.n_done, row.n_correct) == (2, 2)
        assert connection.execute(sa.select(schema.shard.c.attempt)).scalar() == 2


def test_a_claim_is_kept_by_renewing_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    key = a_cell(database, a_board(database, 4), "pgd", "s")
    slow, other = Claims(database), Claims(database)
    elsewhere(slow)
    monkeypatch.setattr(leases, "SECONDS", 1.0)
    assert slow.take(key, range(2))
    for _ in range(8):
        time.sleep(0.2)
        slow.renew()
    assert not other.take(key, range(2))


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_jumps_does_no_harm(database: Database, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """Forward, a claim ends early; back, it would last a day longer: both times another driver goes on."""
    key = a_cell(database, a_board(database, 4), "pgd", "s")
    one, other = Claims(database), Claims(database)
    elsewhere(one)
    assert one.take(key, range(2))
    true = leases.clock
    monkeypatch.setattr(leases, "clock", lambda connection: true(connection) + hours * 3600.0)
    assert other.take(key, range(2))
    assert writer.record_shard(database, key, shard(0, [True, False]), 4)
    assert not writer.record_shard(database, key, shard(0, [True, False]), 4)
    assert writer.done_examples(database, key) == {0, 1}


def claim_and_sleep(url: str, key: writer.CellKey, ready: Any) -> None:
    assert Claims(open_database(url, create=False)).take(key, range(2))
    ready.set()
    time.sleep(600)


@pytest.mark.needs_process
def test_the_claim_of_a_killed_driver_of_this_machine_is_free_at_once(new_url: Callable[[], str]) -> None:
    url = new_url()
    database = open_database(url, create=True)
    key = a_cell(database, a_board(database, 4), "pgd", "s")
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    driver = context.Process(target=claim_and_sleep, args=(url, key, ready))
    driver.start()
    assert ready.wait(60)
    heir = Claims(database)
    assert not heir.take(key, range(2))
    assert driver.pid is not None
    os.kill(driver.pid, signal.SIGKILL)
    driver.join(60)
    assert heir.take(key, range(2))


def drive(url: str, keys: list[writer.CellKey], size: int, counts: Any) -> None:
    """A driver with attacks that take no time."""
    database = open_database(url, create=False)
    claims, made = Claims(database), 0
    while True:
        left = {k: sorted(set(range(60)) - writer.done_examples(database, k)) for k in keys}
        if not any(left.values()):
            break
        for key, examples in left.items():
            for first in range(0, len(examples), size):
                if free := claims.take(key, examples[first : first + size]):
                    time.sleep(0.002)
                    made += writer.record_shard(database, key, shard_of(free, [i % 3 > 0 for i in free]), 60)
    counts.put(made)


@pytest.mark.needs_process
def test_two_drivers_on_one_board_lose_and_double_nothing(new_url: Callable[[], str]) -> None:
    url = new_url()
    database = open_database(url, create=True)
    board = a_board(database, 60)
    keys = [a_cell(database, board, attack, "s") for attack in ("pgd", "mt", "square")]
    context = multiprocessing.get_context("spawn")
    counts = context.Queue()
    drivers = [context.Process(target=drive, args=(url, keys, size, counts)) for size in (4, 7)]
    for driver in drivers:
        driver.start()
    made = [counts.get(timeout=120) for _ in drivers]
    for driver in drivers:
        driver.join(60)
    assert sum(made) > 0  # how they shared the work is up to the scheduler; what counts is below
    with database.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(schema.result)).scalar() == 180
        for cell in connection.execute(sa.select(schema.cell)):
            assert (cell.status, cell.n_done, cell.n_correct, cell.gradients) == ("done", 60, 40, 600)
        assert not connection.execute(sa.select(schema.shard).where(schema.shard.c.status != "done")).all()


def start_together(url: str, names: Any) -> None:
    names.put(a_board(open_database(url, create=True), 4))


@pytest.mark.needs_process
def test_drivers_that_start_at_once_on_an_empty_database_agree(new_url: Callable[[], str]) -> None:
    url, context = new_url(), multiprocessing.get_context("spawn")
    names = context.Queue()
    drivers = [context.Process(target=start_together, args=(url, names)) for _ in range(4)]
    for driver in drivers:
        driver.start()
    assert {names.get(timeout=120) for _ in drivers} == {1}
    for driver in drivers:
        driver.join(60)
        assert driver.exitcode == 0


def test_claims_of_some_examples_among_others(database: Database) -> None:
    """What still stands has gaps: two drivers share it example by example."""
    key = a_cell(database, a_board(database, 12), "pgd", "s")
    one, other = Claims(database), Claims(database)
    assert one.take(key, [1, 4, 9]) == [1, 4, 9]
    assert other.take(key, [0, 1, 2, 9, 11]) == [0, 2, 11]
    assert one.take(key, [0, 1, 2]) == [1], "one's own, and not the other's"
    assert writer.record_shard(database, key, shard_of([0, 2, 11], [True, False, True]), 12)
    assert writer.done_examples(database, key) == {0, 2, 11}
    assert one.take(key, range(12)) == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    assert leases.waiting_for(database, [key]) == 1, "one claim gave way to the other"
