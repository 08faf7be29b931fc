"""Workers on this machine: processes that were started afresh, so that they never had the key."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
from collections.abc import Sequence

from bench.executors.pool import Crew, Limits, Message, Worker
from bench.executors.serving import serve
from bench.executors.worker import Task


class LocalWorker(Worker):
    """A process at the other end of a pipe."""

    def __init__(self, threads: int, memory: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self._process = context.Process(
            target=serve, args=(far_end, threads, memory), daemon=True, name="bench-attacker"
        )
        self._process.start()
        far_end.close()

    def send(self, task: Task) -> None:
        with contextlib.suppress(OSError):  # it is dead, and `hear` will say so
            self.pipe.send(task)

    def hear(self) -> Message:
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            code = self._process.exitcode
            self.end()
            return ("lost", f"exit code {code}")

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


class LocalCrew(Crew):
    """Shares the machine's cores among its workers."""

    name = "local"

    def __init__(self, limits: Limits) -> None:
        self._threads, self._memory = max(1, (os.cpu_count() or 1) // limits.workers), limits.memory

    def hire(self) -> LocalWorker:
        return LocalWorker(self._threads, self._memory)

    def listen(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        pipes = {worker.pipe: worker for worker in workers if isinstance(worker, LocalWorker)}
        return [(pipes[pipe], pipes[pipe].hear()) for pipe in multiprocessing.connection.wait(list(pipes), seconds)]  # type: ignore[index]

    def close(self) -> None:
        pass
