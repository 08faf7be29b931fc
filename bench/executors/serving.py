"""A worker's side: works on a task and says what happens, in the messages of `bench.executors.messages`."""

from __future__ import annotations

import queue
import resource
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from bench.executors.base import AttackTask
from bench.executors.child import error_report, prepare_child
from bench.executors.messages import Message, Notice, SourceReady, TaskFailed, TaskFinished, WorkDone
from bench.executors.worker import Attacker

SECONDS_BETWEEN_REPORTS = 0.2

Send = Callable[[Message], None]


def limit_memory(size: int | None) -> None:
    """Makes allocations beyond so many bytes of data fail, in this process alone.

    The data of a process is what it may write to; address space would also count what TensorFlow reserves and never uses.
    """
    if size is not None:
        kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        resource.setrlimit(kind, (size, size))


def work_on(attacker: Attacker, task: AttackTask, send: Send) -> None:
    """Works on one task; every failure of it is a message, not an exception."""
    began = time.monotonic()
    try:
        attacker.prepare(task)
        send(SourceReady())
        attacked = attacker.run(task, _reporter(send))
        send(TaskFinished(attacked, time.monotonic() - began))
    except BrokenPipeError:
        raise
    except MemoryError as error:
        send(TaskFailed(f"the attack ran out of memory (--memory-limit allows more): {error}".rstrip(": ")))
    except Exception as error:
        send(TaskFailed(*error_report(error)))


def serve(pipe: Connection, threads: int, memory: int | None) -> None:
    """Takes tasks from the pipe until it closes: the life of a local worker."""
    prepare_child()
    limit_memory(memory)
    from bench.support import devices

    devices.configure(threads)
    attacker = Attacker(lambda text: pipe.send(Notice(text)))
    tasks: queue.SimpleQueue[AttackTask | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), daemon=True).start()
    while (task := tasks.get()) is not None:
        try:
            work_on(attacker, task, pipe.send)
        except BrokenPipeError:
            return


def _receive(pipe: Connection, tasks: queue.SimpleQueue[AttackTask | None]) -> None:
    """Takes tasks off the pipe as they come: if both ends waited to send, neither would ever read."""
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        tasks.put(None)


def _reporter(send: Send) -> Callable[[int], None]:
    """Passes progress on a few times a second, not at every step."""
    unsent, last = 0, time.monotonic()

    def report(amount: int) -> None:
        nonlocal unsent, last
        unsent += amount
        if time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
            send(WorkDone(unsent))
            unsent, last = 0, time.monotonic()

    return report
