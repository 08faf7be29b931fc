"""A worker's side: works on a task and says what happens, in the messages of `bench.executors.pool`."""

from __future__ import annotations

import os
import queue
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from bench.api import BenchError
from bench.executors.worker import Attacker, Task

SECONDS_BETWEEN_REPORTS = 0.2


def limit_memory(size: int | None) -> None:
    """Makes allocations beyond so many bytes of data fail, in this process alone.

    The data of a process is what it may write to; address space would also count what TensorFlow reserves and never uses.
    """
    if size is not None:
        kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        resource.setrlimit(kind, (size, size))


def attend(attacker: Attacker, task: Task, send: Callable[[Any], None]) -> None:
    """Works on one task; every failure of it is a message, not an exception."""
    began = time.monotonic()
    try:
        attacker.prepare(task)
        send(("ready",))
        attacked = attacker.run(task, _reporter(send))
        send(("done", attacked, time.monotonic() - began))
    except BrokenPipeError:
        raise
    except BenchError as error:
        send(("failed", str(error), ""))
    except MemoryError as error:
        send(("failed", f"the attack ran out of memory (--memory-limit allows more): {error}".rstrip(": "), ""))
    except Exception as error:
        send(("failed", " ".join(f"{type(error).__name__}: {error}".split()), traceback.format_exc()))


def serve(pipe: Connection, threads: int, memory: int | None) -> None:
    """Takes tasks from the pipe until it closes: the life of a local worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=die_with_parent, daemon=True).start()
    limit_memory(memory)
    from bench.support import devices

    devices.configure(threads)
    attacker = Attacker(lambda text: pipe.send(("say", text)))
    tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), daemon=True).start()
    while (task := tasks.get()) is not None:
        try:
            attend(attacker, task, pipe.send)
        except BrokenPipeError:
            return


def _receive(pipe: Connection, tasks: queue.SimpleQueue[Task | None]) -> None:
    """Takes tasks off the pipe as they come: if both ends waited to send, neither would ever read."""
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        tasks.put(None)


def die_with_parent() -> None:
    """Ends this process when its parent is gone, however that ended; to be run in a thread."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _reporter(send: Callable[[Any], None]) -> Callable[[int], None]:
    """Passes progress on a few times a second, not at every step."""
    waiting, last = 0, time.monotonic()

    def report(amount: int) -> None:
        nonlocal waiting, last
        waiting += amount
        if time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
            send(("progress", waiting))
            waiting, last = 0, time.monotonic()

    return report
