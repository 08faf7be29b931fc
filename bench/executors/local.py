"""Workers on this machine: processes that were started afresh, so that they never had the key."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection

from bench.executors.base import AttackTask, Executor, ExecutorPlugin, Limits, Say
from bench.executors.child import spawn_child
from bench.executors.messages import Message, WorkerLost
from bench.executors.pool import PoolExecutor, Worker, WorkerPool
from bench.executors.serving import serve

SECONDS_TO_DIE = 5


class LocalWorker(Worker):
    """A process at the other end of a pipe."""

    def __init__(self, threads: int, memory: int | None) -> None:
        self._process, self.pipe = spawn_child(serve, "bench-attacker", threads, memory)

    def send(self, task: AttackTask) -> None:
        with contextlib.suppress(OSError):  # it is dead, and `receive` will say so
            self.pipe.send(task)

    def receive(self) -> Message:
        """Its next message; waits for it."""
        try:
            message: Message = self.pipe.recv()
            return message
        except (EOFError, OSError):
            self._process.join(SECONDS_TO_DIE)
            code = self._process.exitcode
            self.kill()
            return WorkerLost(f"exit code {code}")

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


class LocalPool(WorkerPool):
    """Shares the machine's cores among its workers."""

    def __init__(self, limits: Limits) -> None:
        self._threads, self._memory = max(1, (os.cpu_count() or 1) // limits.workers), limits.memory

    def spawn(self) -> LocalWorker:
        return LocalWorker(self._threads, self._memory)

    def receive(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        pipes = {worker.pipe: worker for worker in workers if isinstance(worker, LocalWorker)}
        ready = multiprocessing.connection.wait(list(pipes), seconds)
        return [(pipes[pipe], pipes[pipe].receive()) for pipe in ready if isinstance(pipe, Connection)]

    def close(self) -> None:
        """There is nothing but the workers."""


class Local(ExecutorPlugin):
    """Processes on this machine."""

    def start(self, name: str, limits: Limits, say: Say) -> Executor:
        return PoolExecutor(name, LocalPool(limits), limits, say)
