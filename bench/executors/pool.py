"""Hands shards to workers and hears what becomes of them; a worker that is lost costs its shard one attempt.

Where workers live is a `Crew`'s business: on this machine (`local`) or on a Ray cluster (`ray`). Everything else, such
as retries and time limits, is here, and so the same for both.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.api import Attacked
from bench.executors.worker import Task

ATTEMPTS = 2  # a shard whose worker is lost is tried once more, on another worker
AHEAD = 2  # tasks in a worker's hands, so that it attacks the next while the driver judges the last
HEARTBEAT = 0.5

Message = tuple[Any, ...]
"""What a worker says of the task it is at: ("ready",) once its source is built, ("progress", work since the last one),
("say", text), ("done", Attacked, seconds), ("failed", text, traceback); and ("lost", how) in place of a dead worker."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many workers there are, and what each may take."""

    workers: int = 1
    seconds: float | None = None  # an attack on one shard; training a source does not count
    memory: int | None = None  # bytes of a worker's process


class Worker(abc.ABC):
    """A process without the key that attacks; it works on its tasks one by one, in the order they were sent."""

    @abc.abstractmethod
    def send(self, task: Task) -> None: ...

    @abc.abstractmethod
    def end(self) -> None:
        """Kills it."""


class Crew(abc.ABC):
    """Where workers come from."""

    name: str
    one_builds_first: bool = False
    """Whether a source is built, and so trained, by one worker before others get tasks on it."""

    @abc.abstractmethod
    def hire(self) -> Worker:
        """A new worker; returns before it is up."""

    @abc.abstractmethod
    def listen(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        """What workers have said, waiting so long for the first word."""

    @abc.abstractmethod
    def close(self) -> None:
        """Gives back what was set up for the workers; they are ended already."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a task: the attack's result, or why there is none."""

    index: int
    attacked: Attacked | None
    seconds: float
    error: str | None
    detail: str = ""


@dataclasses.dataclass
class Job:
    """A task on its way: its index, how often its worker was lost, and when its attack began."""

    index: int
    task: Task
    lost: int = 0
    began: float | None = None

    @property
    def source(self) -> tuple[object, ...]:
        return (self.task.setup.weights, self.task.strategy, self.task.source)


class Executor:
    """A pool of workers that are started when there is work, and hold their models between tasks."""

    def __init__(self, crew: Crew, limits: Limits, say: Callable[[str], None]) -> None:
        self._crew, self._limits, self._say = crew, limits, say
        self._hands: dict[Worker, collections.deque[Job]] = {}
        self._waiting: collections.deque[Job] = collections.deque()
        self._built: set[tuple[object, ...]] = set()

    @property
    def name(self) -> str:
        return self._crew.name

    def run(
        self, take: Callable[[], tuple[int, Task] | None], progress: Callable[[int, int], None]
    ) -> Iterator[Outcome | None]:
        """Outcomes of every task that `take` gives until it gives None, as they come; None now and then, as a heartbeat.

        `take` is called when a worker has room, for a task carries its images. `progress(index, amount)` is called
        as the engines report.
        """
        while True:
            self._hand_out(take)
            if not any(self._hands.values()):
                return
            for worker, message in self._crew.listen(list(self._hands), HEARTBEAT):
                yield from self._hear(worker, message, progress)
            yield from self._stop_late_ones()
            yield None

    def close(self) -> None:
        """Ends all workers at once."""
        for worker in self._hands:
            worker.end()
        self._hands.clear()
        self._crew.close()

    def _hand_out(self, take: Callable[[], tuple[int, Task] | None]) -> None:
        """Gives every worker one task before any has two; hires workers while there are tasks for them."""
        for depth in range(1, AHEAD + 1):
            for place in range(self._limits.workers):
                worker = list(self._hands)[place] if place < len(self._hands) else None
                if worker is not None and len(self._hands[worker]) >= depth:
                    continue
                job = self._next(take)
                if job is None:
                    return
                if worker is None:
                    worker = self._crew.hire()
                    self._hands[worker] = collections.deque()
                self._hands[worker].append(job)
                worker.send(job.task)

    def _next(self, take: Callable[[], tuple[int, Task] | None]) -> Job | None:
        """The first task that may start: one that was handed out before, or a new one."""
        for job in list(self._waiting):
            if self._may_start(job):
                self._waiting.remove(job)
                return job
        while len(self._waiting) < AHEAD * self._limits.workers:
            taken = take()
            if taken is None:
                return None
            job = Job(*taken)
            if self._may_start(job):
                return job
            self._waiting.append(job)
        return None

    def _may_start(self, job: Job) -> bool:
        if not self._crew.one_builds_first or job.source in self._built:
            return True
        return all(job.source != other.source for jobs in self._hands.values() for other in jobs)

    def _hear(self, worker: Worker, message: Message, progress: Callable[[int, int], None]) -> Iterator[Outcome]:
        if worker not in self._hands:
            return  # it was ended, and this was said before
        kind, *rest = message
        jobs = self._hands[worker]
        if kind == "say":
            self._say(rest[0])
        elif kind == "lost":
            yield from self._replace(worker, rest[0])
        elif kind == "ready":
            jobs[0].began = time.monotonic()
            self._built.add(jobs[0].source)
        elif kind == "progress":
            progress(jobs[0].index, rest[0])
        elif kind == "done":
            yield Outcome(jobs.popleft().index, rest[0], rest[1], None)
        else:
            yield Outcome(jobs.popleft().index, None, 0.0, rest[0], rest[1])

    def _replace(self, worker: Worker, how: str) -> Iterator[Outcome]:
        """Tries the shard that a lost worker was at once more, and what it had not begun as if it were new."""
        jobs = self._hands.pop(worker)
        if not jobs:
            return
        job = jobs.popleft()
        job.lost, job.began = job.lost + 1, None
        self._waiting.extendleft(reversed(jobs))
        if job.lost < ATTEMPTS:
            self._say(f"the attack's process died ({how}); trying that shard once more")
            self._waiting.appendleft(job)
        else:
            yield Outcome(job.index, None, 0.0, f"the attack's process died {job.lost} times ({how}): out of memory?")

    def _stop_late_ones(self) -> Iterator[Outcome]:
        limit = self._limits.seconds
        for worker, jobs in list(self._hands.items()):
            if limit and jobs and jobs[0].began is not None and time.monotonic() - jobs[0].began > limit:
                worker.end()
                del self._hands[worker]
                job = jobs.popleft()
                self._waiting.extendleft(reversed(jobs))
                yield Outcome(job.index, None, 0.0, f"the attack took longer than the {limit:g} s of --time-limit")
