"""Gives tasks to workers and follows what becomes of them; a worker that is lost costs its task one attempt.

Where workers live is a `WorkerPool`'s business: on this machine (`local`) or on a Ray cluster (`ray`). Everything else, such
as retries and time limits, is here, and so the same for all.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import ClassVar

from bench.executors.base import AttackTask, Limits, Outcome, ReportProgress, Say, TakeTask
from bench.executors.messages import (
    BrokenReply,
    Message,
    Notice,
    SourceReady,
    TaskFailed,
    TaskFinished,
    WorkDone,
    WorkerLost,
)

ATTEMPTS = 2  # a task whose worker is lost is tried once more, on another worker
AHEAD = 2  # tasks that a worker has at once, so that it attacks the next while the driver judges the last
HEARTBEAT = 0.5


class Worker(abc.ABC):
    """A process without the key that attacks; it works on its tasks one by one, in the order they were sent."""

    @abc.abstractmethod
    def send(self, task: AttackTask) -> None:
        """Gives it a task. Never waits for it: a worker that is stopped or stuck must not hold up the driver."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends it at once, whatever it is doing; one that is dead already may be ended again."""

    def halted(self) -> str:
        """Why it cannot go on by itself, and what helps, in half a sentence; empty if it can, or that is not known."""
        return ""


class WorkerPool(abc.ABC):
    """Where workers come from, and what they say."""

    shares_files: ClassVar[bool] = True
    one_builds_first: ClassVar[bool] = False
    """Whether a source is built, and so trained, by one worker before others get tasks on it."""

    @abc.abstractmethod
    def spawn(self) -> Worker:
        """A new worker; returns before it is up."""

    @abc.abstractmethod
    def receive(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        """Messages of these workers, waiting so long for the first; a dead worker's is `WorkerLost`.

        Whatever runs attacks is not to be trusted: messages are made here, of plain values that were checked
        (`bench.executors.codec`), never unpickled. What is no message is `BrokenReply`.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Gives back what was set up for the workers; they are killed already."""


@dataclasses.dataclass
class Attempt:
    """A task that a worker has, or waits for one: how often its worker was lost, and when its attack began."""

    task: AttackTask
    lost: int = 0
    began: float | None = None

    @property
    def source(self) -> tuple[object, ...]:
        return (self.task.setup.weights, self.task.strategy, self.task.source)


class PoolExecutor:
    """Workers that are started when there is work, and keep their models between tasks."""

    def __init__(self, name: str, pool: WorkerPool, limits: Limits, say: Say) -> None:
        self.name, self.shares_files = name, pool.shares_files
        self._pool, self._limits, self._say = pool, limits, say
        self._assigned: dict[Worker, collections.deque[Attempt]] = {}
        self._waiting: collections.deque[Attempt] = collections.deque()
        self._built: set[tuple[object, ...]] = set()
        self._halted: dict[Worker, str] = {}

    def run(self, take: TakeTask, progress: ReportProgress) -> Iterator[Outcome | None]:
        """As `Executor.run`."""
        while True:
            self._assign(take)
            if not any(self._assigned.values()):
                return
            for worker, message in self._pool.receive(list(self._assigned), HEARTBEAT):
                yield from self._handle(worker, message, progress)
            yield from self._kill_late_ones()
            self._tell_of_halted_ones()
            yield None

    def close(self) -> None:
        """As `Executor.close`."""
        for worker in self._assigned:
            worker.kill()
        self._assigned.clear()
        self._pool.close()

    def _assign(self, take: TakeTask) -> None:
        """Gives every worker one task before any has two; spawns workers while there are tasks for them."""
        for depth in range(1, AHEAD + 1):
            for place in range(self._limits.workers):
                worker = list(self._assigned)[place] if place < len(self._assigned) else None
                if worker is not None and len(self._assigned[worker]) >= depth:
                    continue
                attempt = self._next(take)
                if attempt is None:
                    return
                if worker is None:
                    worker = self._pool.spawn()
                    self._assigned[worker] = collections.deque()
                self._assigned[worker].append(attempt)
                worker.send(attempt.task)

    def _next(self, take: TakeTask) -> Attempt | None:
        """The first task that may start: one that was taken before, or a new one."""
        for attempt in list(self._waiting):
            if self._may_start(attempt):
                self._waiting.remove(attempt)
                return attempt
        while len(self._waiting) < AHEAD * self._limits.workers:
            task = take()
            if task is None:
                return None
            attempt = Attempt(task)
            if self._may_start(attempt):
                return attempt
            self._waiting.append(attempt)
        return None

    def _may_start(self, attempt: Attempt) -> bool:
        if not self._pool.one_builds_first or attempt.source in self._built:
            return True
        return all(attempt.source != other.source for attempts in self._assigned.values() for other in attempts)

    def _handle(self, worker: Worker, message: Message, progress: ReportProgress) -> Iterator[Outcome]:
        if worker not in self._assigned:
            return  # it was killed, and this was said before
        attempts = self._assigned[worker]
        match message:
            case Notice(text):
                self._say(text)
            case WorkerLost(reason):
                yield from self._try_again(worker, reason)
            case BrokenReply(reason):
                yield from self._end(worker, f"the attack's process sent {reason}, and was ended")
            case _ if not attempts:
                pass  # a thread that an attack has left behind
            case SourceReady():
                if attempts[0].began is None:  # said again, it gives an attack no more time
                    attempts[0].began = time.monotonic()
                self._built.add(attempts[0].source)
            case WorkDone(amount):
                progress(attempts[0].task.index, amount)
            case TaskFinished(attacked, seconds):
                yield Outcome(attempts.popleft().task.index, attacked, seconds, None)
            case TaskFailed(error, detail):
                yield Outcome(attempts.popleft().task.index, None, 0.0, error, detail)

    def _try_again(self, worker: Worker, reason: str) -> Iterator[Outcome]:
        """Tries the task that a lost worker was at once more, and what it had not begun as if it were new."""
        worker.kill()  # it may only have said so, and what it has started may live
        attempts = self._assigned.pop(worker)
        if not attempts:
            return
        current = attempts.popleft()
        current.lost, current.began = current.lost + 1, None
        self._waiting.extendleft(reversed(attempts))
        if current.lost < ATTEMPTS:
            self._say(f"the attack's process died ({reason}); trying that shard once more")
            self._waiting.appendleft(current)
        else:
            error = f"the attack's process died {current.lost} times ({reason}): out of memory?"
            yield Outcome(current.task.index, None, 0.0, error)

    def _end(self, worker: Worker, error: str) -> Iterator[Outcome]:
        """Kills a worker: the task it was at has failed, the others it had are as if they were new."""
        worker.kill()
        attempts = self._assigned.pop(worker)
        current = attempts.popleft() if attempts else None
        self._waiting.extendleft(reversed(attempts))
        if current is not None:
            yield Outcome(current.task.index, None, 0.0, error)

    def _kill_late_ones(self) -> Iterator[Outcome]:
        limit = self._limits.seconds
        for worker, attempts in list(self._assigned.items()):
            began = attempts[0].began if attempts else None
            if limit and began is not None and time.monotonic() - began > limit:
                yield from self._end(worker, f"the attack took longer than the {limit:g} s of --time-limit")

    def _tell_of_halted_ones(self) -> None:
        """Says once why a worker does not go on."""
        halted = {worker: worker.halted() for worker, attempts in self._assigned.items() if attempts}
        for worker, reason in halted.items():
            if reason and reason != self._halted.get(worker):
                self._say(f"the attack's {reason}" + ("" if self._limits.seconds else "; --time-limit would end it"))
        self._halted = halted
