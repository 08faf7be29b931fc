"""Retries, time limits and the order of tasks, with workers that are objects of this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.api import Attacked, Batch
from bench.executors import pool
from bench.executors.base import AttackTask, Executor, Limits, Outcome
from bench.executors.messages import Message, Notice, SourceReady, TaskFailed, TaskFinished, WorkDone, WorkerLost
from bench.executors.pool import PoolExecutor, Worker, WorkerPool

EMPTY = np.zeros(0)
ATTACKED = Attacked(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
DONE = (SourceReady(), TaskFinished(ATTACKED, 1.5))
LOST = (SourceReady(), WorkerLost("exit code -9"))
HANGS = (SourceReady(),)

Script = Callable[[AttackTask, int], Sequence[Message]]
"""What a worker says to a task that it is given for the so-manieth time."""


class FakeWorker(Worker):
    """Answers by a script; a dead one says nothing more."""

    def __init__(self, script: Script, seen: dict[int, int]) -> None:
        self._script, self._seen = script, seen
        self.tasks: list[int] = []
        self.killed = False
        self._queued: deque[AttackTask] = deque()
        self._said: deque[Message] = deque()

    def send(self, task: AttackTask) -> None:
        self.tasks.append(task.index)
        self._queued.append(task)

    def kill(self) -> None:
        self.killed = True

    def next_message(self) -> Message | None:
        if self.killed:
            return None
        if not self._said and self._queued:
            task = self._queued.popleft()
            self._seen[task.index] = self._seen.get(task.index, 0) + 1
            self._said.extend(self._script(task, self._seen[task.index]))
            if not isinstance(self._said[-1], TaskFinished | TaskFailed):
                self._queued.clear()  # it hangs, or is dead
        message = self._said.popleft() if self._said else None
        self.killed = self.killed or isinstance(message, WorkerLost)
        return message


class FakePool(WorkerPool):
    """Workers of this process; every `receive` takes a second of its clock."""

    def __init__(self, script: Script, one_builds_first: bool = False) -> None:
        self._script, self._seen = script, dict[int, int]()
        self.one_builds_first = one_builds_first  # type: ignore[misc]
        self.workers: list[FakeWorker] = []
        self.now, self.closed = 0.0, False

    def spawn(self) -> FakeWorker:
        self.workers.append(FakeWorker(self._script, self._seen))
        return self.workers[-1]

    def receive(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        self.now += 1.0
        found = [(worker, worker.next_message()) for worker in workers if isinstance(worker, FakeWorker)]
        return [(worker, message) for worker, message in found if message is not None]

    def close(self) -> None:
        self.closed = True


def task(index: int, source: str = "nominal") -> AttackTask:
    setup: Any = SimpleNamespace(weights=Path("w"))
    batch: Any = SimpleNamespace(spec=Batch)
    return AttackTask(index, setup, "pgd", {}, source, "transfer", batch)


class Result:
    """What a run over a fake pool came to."""

    def __init__(self, tasks: Sequence[AttackTask], fake: FakePool, limits: Limits) -> None:
        self.said: list[str] = []
        self.progress: list[tuple[int, int]] = []
        executor: Executor = PoolExecutor("fake", fake, limits, self.said.append)
        left = iter(tasks)
        given: Iterator[Outcome | None] = executor.run(
            lambda: next(left, None), lambda index, amount: self.progress.append((index, amount))
        )
        self.outcomes = [outcome for outcome in given if outcome is not None]
        executor.close()

    def errors(self) -> dict[int, str | None]:
        return {outcome.index: outcome.error for outcome in self.outcomes}


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakePool], FakePool]:
    """Has the executor read the fake pool's clock."""

    def use(fake: FakePool) -> FakePool:
        monkeypatch.setattr("bench.executors.pool.time.monotonic", lambda: fake.now)
        return fake

    return use


def test_every_task_has_one_outcome_and_workers_are_used_again() -> None:
    fake = FakePool(lambda task, time: DONE)
    result = Result([task(i) for i in range(7)], fake, Limits(workers=2))
    assert sorted(outcome.index for outcome in result.outcomes) == list(range(7))
    assert all(outcome.attacked is ATTACKED and outcome.seconds == 1.5 for outcome in result.outcomes)
    assert len(fake.workers) == 2
    assert fake.closed
    assert all(worker.killed for worker in fake.workers)


def test_there_are_no_more_workers_than_tasks_and_none_without_one() -> None:
    fake = FakePool(lambda task, time: DONE)
    Result([task(0)], fake, Limits(workers=4))
    assert len(fake.workers) == 1
    idle = FakePool(lambda task, time: DONE)
    assert Result([], idle, Limits(workers=4)).outcomes == []
    assert idle.workers == []


def test_every_worker_has_a_task_before_any_has_two() -> None:
    fake = FakePool(lambda task, time: DONE)
    Result([task(i) for i in range(4)], fake, Limits(workers=2))
    assert [worker.tasks for worker in fake.workers] == [[0, 2], [1, 3]]


def test_progress_and_notices_are_passed_on() -> None:
    script: Script = lambda task, time: (Notice("training"), SourceReady(), WorkDone(3), WorkDone(4), *DONE[1:])  # noqa: E731
    result = Result([task(5)], FakePool(script), Limits())
    assert result.said == ["training"]
    assert result.progress == [(5, 3), (5, 4)]


def test_a_task_whose_worker_is_lost_is_tried_once_more_on_another_worker() -> None:
    fake = FakePool(lambda task, time: LOST if task.index == 0 and time == 1 else DONE)
    result = Result([task(i) for i in range(3)], fake, Limits())
    assert result.errors() == {0: None, 1: None, 2: None}
    assert result.said == ["the attack's process died (exit code -9); trying that shard once more"]
    first, second = fake.workers
    assert first.tasks == [0, 1]  # the second was sent ahead, and never begun
    assert second.tasks == [0, 1, 2]


def test_a_task_that_kills_every_worker_fails_alone_after_its_attempts() -> None:
    fake = FakePool(lambda task, time: LOST if task.index == 1 else DONE)
    result = Result([task(i) for i in range(4)], fake, Limits())
    failed = f"the attack's process died {pool.ATTEMPTS} times (exit code -9): out of memory?"
    assert result.errors() == {0: None, 1: failed, 2: None, 3: None}
    assert sum(worker.tasks.count(1) for worker in fake.workers) == pool.ATTEMPTS
    assert len(fake.workers) == 3


def test_what_was_sent_ahead_to_a_lost_worker_costs_no_attempt() -> None:
    fake = FakePool(lambda task, time: LOST if task.index < 2 and time == 1 else DONE)
    assert Result([task(0), task(1)], fake, Limits()).errors() == {0: None, 1: None}


def test_a_worker_that_was_lost_between_two_runs_is_replaced() -> None:
    fake = FakePool(lambda task, time: DONE)
    executor = PoolExecutor("fake", fake, Limits(), lambda text: None)
    for index in (0, 1):
        left = iter([task(index)])
        assert [o.error for o in executor.run(lambda left=left: next(left, None), lambda *_: None) if o] == [None]  # type: ignore[misc]
        fake.workers[0]._said.append(WorkerLost("exit code 1"))
    assert len(fake.workers) == 2


def test_an_attack_that_fails_is_an_outcome_and_the_worker_goes_on() -> None:
    fake = FakePool(lambda task, time: DONE if task.index else (SourceReady(), TaskFailed("no gradient", "trace")))
    result = Result([task(0), task(1)], fake, Limits())
    assert result.errors() == {0: "no gradient", 1: None}
    assert [outcome.detail for outcome in result.outcomes] == ["trace", ""]
    assert len(fake.workers) == 1


def test_an_attack_over_its_time_limit_is_killed_and_the_others_go_on(clocked: Callable[[FakePool], FakePool]) -> None:
    fake = clocked(FakePool(lambda task, time: HANGS if task.index == 1 else DONE))
    result = Result([task(i) for i in range(4)], fake, Limits(seconds=10))
    assert result.errors() == {0: None, 1: "the attack took longer than the 10 s of --time-limit", 2: None, 3: None}
    assert fake.workers[0].killed
    assert fake.workers[1].tasks == [2, 3]
    assert 10 < fake.now < 25


def test_building_a_source_does_not_count_towards_the_time_limit(clocked: Callable[[FakePool], FakePool]) -> None:
    training = [Notice("training")] * 50
    fake = clocked(FakePool(lambda task, time: (*training, *DONE)))
    assert Result([task(0)], fake, Limits(seconds=10)).errors() == {0: None}
    assert fake.now > 50


def test_a_retry_has_its_whole_time_again(clocked: Callable[[FakePool], FakePool]) -> None:
    slow: Sequence[Message] = (*[Notice("building")] * 8, SourceReady(), *[WorkDone(1)] * 8)

    def script(task: AttackTask, time: int) -> Sequence[Message]:
        return (*slow, WorkerLost("exit code 1") if time == 1 else TaskFinished(ATTACKED, 8.0))

    assert Result([task(0)], clocked(FakePool(script)), Limits(seconds=10)).errors() == {0: None}


def test_a_worker_that_is_lost_when_it_has_no_task_is_not_missed() -> None:
    busy: Sequence[Message] = (SourceReady(), *[WorkDone(1)] * 6, TaskFinished(ATTACKED, 1.0))
    lost: Sequence[Message] = (*DONE, WorkerLost("exit code 1"))
    fake = FakePool(lambda task, time: lost if task.index else busy)
    result = Result([task(0), task(1)], fake, Limits(workers=2))
    assert result.errors() == {0: None, 1: None}
    assert result.said == []


def test_one_worker_builds_a_source_before_others_get_tasks_on_it() -> None:
    fake = FakePool(lambda task, time: (Notice("training"), Notice("trained"), *DONE), one_builds_first=True)
    tasks = [task(0, "a"), task(1, "a"), task(2, "a"), task(3, "b"), task(4, "a")]
    result = Result(tasks, fake, Limits(workers=2))
    assert set(result.errors()) == set(range(5))
    assert [worker.tasks[0] for worker in fake.workers] == [0, 3]


def test_a_source_that_is_built_is_attacked_by_all_workers() -> None:
    fake = FakePool(lambda task, time: (SourceReady(), WorkDone(1), WorkDone(1), DONE[1]), one_builds_first=True)
    Result([task(i, "a") for i in range(6)], fake, Limits(workers=2))
    assert [worker.tasks[0] for worker in fake.workers] == [0, 1]


def test_messages_of_a_worker_that_was_killed_are_ignored(clocked: Callable[[FakePool], FakePool]) -> None:
    class Late(FakePool):
        """Delivers once more what a killed worker said before."""

        def receive(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
            late = [(worker, DONE[1]) for worker in self.workers if worker.killed]
            return [*late, *super().receive(workers, seconds)]

    fake = clocked(Late(lambda task, time: HANGS if task.index == 0 else DONE))
    result = Result([task(0), task(1)], fake, Limits(seconds=2))
    assert [outcome.index for outcome in result.outcomes] == [0, 1]
