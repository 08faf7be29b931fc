"""Workers on this machine: processes that were started afresh, so that they never had the key."""

from __future__ import annotations

import multiprocessing.connection
import os
from collections.abc import Sequence

from bench.executors.base import AttackTask, Executor, ExecutorPlugin, Limits, Say
from bench.executors.channel import ChannelClosed, Malformed
from bench.executors.child import spawn_child
from bench.executors.conversation import Conversation
from bench.executors.messages import BrokenReply, Message, WorkerLost
from bench.executors.pool import PoolExecutor, Worker, WorkerPool
from bench.executors.serving import serve


class LocalWorker(Worker):
    """A process at the other end of a channel."""

    def __init__(self, threads: int, memory: int | None) -> None:
        self.child = spawn_child(serve, "bench-attacker", threads, memory)
        self._conversation = Conversation()

    def send(self, task: AttackTask) -> None:
        self._conversation.send(self.child.channel, task)

    def messages(self) -> list[Message]:
        """What it has said by now; waits for nothing."""
        try:
            return list(self._conversation.messages(self.child.frames()))
        except ChannelClosed:
            return [WorkerLost(self.child.ended())]
        except Malformed as error:
            return [BrokenReply(str(error))]

    def halted(self) -> str:
        if not self.child.stopped():
            return ""
        return f"process {self.child.pid} is stopped by a signal: 'kill -CONT {self.child.pid}' lets it go on"

    def kill(self) -> None:
        self.child.kill()


class LocalPool(WorkerPool):
    """Shares the machine's cores among its workers."""

    def __init__(self, limits: Limits) -> None:
        self._threads, self._memory = max(1, (os.cpu_count() or 1) // limits.workers), limits.memory

    def spawn(self) -> LocalWorker:
        return LocalWorker(self._threads, self._memory)

    def receive(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        own = [worker for worker in workers if isinstance(worker, LocalWorker)]
        multiprocessing.connection.wait([worker.child.channel.fileno() for worker in own], seconds)
        return [(worker, message) for worker in own for message in worker.messages()]

    def close(self) -> None:
        """There is nothing but the workers."""


class Local(ExecutorPlugin):
    """Processes on this machine."""

    def start(self, name: str, limits: Limits, say: Say) -> Executor:
        return PoolExecutor(name, LocalPool(limits), limits, say)
