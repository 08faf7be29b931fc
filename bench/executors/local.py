"""Runs tasks in one worker process on this machine, one ahead of the driver; a worker that dies is replaced."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from bench.api import Attacked, BenchError
from bench.executors.worker import Task, serve

MAX_DEATHS = 2
AHEAD = 2


class Outcome:
    """What became of a task: the attack's result, or why there is none."""

    def __init__(
        self, index: int, attacked: Attacked | None, seconds: float, error: str | None, detail: str = ""
    ) -> None:
        self.index, self.attacked, self.seconds, self.error, self.detail = index, attacked, seconds, error, detail


class LocalExecutor:
    """A worker process that is started on first use and holds its models between tasks."""

    name = "local"

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def run(self, count: int, task: Callable[[int], Task], progress: Callable[[int, int], None]) -> Iterator[Outcome]:
        """Outcomes of `task(0)` to `task(count - 1)`, in order; a task is made when it is sent, for it carries its images.

        `progress(index, amount)` is called as the engines report.

        Two tasks are in the worker's hands at a time, so that it attacks the next while the driver judges the last.
        """
        sent, at, deaths = 0, 0, 0
        while at < count:
            try:
                pipe = self._connect()
                while sent < min(at + AHEAD, count):
                    pipe.send(task(sent))
                    sent += 1
                kind, *rest = pipe.recv()
            except (EOFError, BrokenPipeError, ConnectionResetError):
                code = self._reap()
                deaths += 1
                if deaths >= MAX_DEATHS:
                    yield Outcome(
                        at, None, 0.0, f"the attack's process died {deaths} times (exit code {code}): out of memory?"
                    )
                    at, deaths = at + 1, 0
                else:
                    self._say(f"the attack's process died (exit code {code}); trying that shard once more")
                sent = at
                continue
            if kind == "progress":
                progress(at, rest[0])
            elif kind == "say":
                self._say(rest[0])
            elif kind == "done":
                yield Outcome(at, rest[0], rest[1], None)
                at, deaths = at + 1, 0
            else:
                yield Outcome(at, None, 0.0, rest[0], rest[1])
                at, deaths = at + 1, 0

    def close(self) -> None:
        """Ends the worker at once."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _connect(self) -> Connection:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, far_end = context.Pipe()
            self._process = context.Process(target=serve, args=(far_end,), daemon=True, name="bench-attacker")
            self._process.start()
            far_end.close()
        return self._pipe

    def _reap(self) -> int | None:
        if self._process is None or self._pipe is None:
            raise BenchError("there is no worker to end")
        self._pipe.close()
        self._process.join()
        code = self._process.exitcode
        self._process, self._pipe = None, None
        return code
