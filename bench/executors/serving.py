"""A worker's side: works on a task and says what happens, in the messages of `bench.executors.messages`."""

from __future__ import annotations

import contextlib
import functools
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from bench.api import BenchError
from bench.executors import codec
from bench.executors.base import AttackTask
from bench.executors.channel import Channel, ChannelClosed, Frame, Malformed
from bench.executors.child import error_report
from bench.executors.messages import Message, Notice, SourceReady, TaskFailed, TaskFinished, WorkDone
from bench.executors.worker import Attacker
from bench.support.text import one_line

SECONDS_BETWEEN_REPORTS = 0.2
MOST_WORK = 2**40

Send = Callable[[Message], None]


def limit_memory(size: int | None) -> None:
    """Makes allocations beyond so many bytes of data fail, in this process alone.

    The data of a process is what it may write to; address space would also count what TensorFlow reserves and never uses.
    """
    if size is not None:
        kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        resource.setrlimit(kind, (size, size))


def work_on(attacker: Attacker, take: Callable[[], AttackTask], send: Send) -> None:
    """Works on one task; every failure of it is a message, not an exception, even an attack that calls `sys.exit`."""
    began = time.monotonic()
    try:
        task = take()
        attacker.prepare(task)
        send(SourceReady())
        attacked = attacker.run(task, _reporter(send))
        send(TaskFinished(attacked, time.monotonic() - began))
    except ChannelClosed:
        raise
    except MemoryError as error:
        send(TaskFailed(f"the attack ran out of memory (--memory-limit allows more): {one_line(error)}".rstrip(": ")))
    except BaseException as error:
        send(TaskFailed(*error_report(error)))


def serve(channel: Channel, threads: int, memory: int | None) -> None:
    """Takes tasks from the channel until it closes: the life of a worker."""
    limit_memory(memory)
    from bench.support import devices

    devices.configure(threads)

    def send(message: Message) -> None:
        # At once: what was said of one task must be out before the next may take this process down.
        frame = codec.encoded(message)
        channel.send(frame.document, frame.arrays)

    attacker = Attacker(lambda text: send(Notice(text)))
    frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(channel, frames), daemon=True).start()
    with contextlib.suppress(ChannelClosed):
        while (frame := frames.get()) is not None:
            work_on(attacker, functools.partial(codec.task_of, frame), send)


def _receive(channel: Channel, frames: queue.SimpleQueue[Frame | None]) -> None:
    """Takes tasks off the channel as they come: if both ends waited to send, neither would ever read."""
    with contextlib.suppress(ChannelClosed, Malformed):
        while (frame := channel.receive()) is not None:
            frames.put(frame)
    frames.put(None)


def _reporter(send: Send) -> Callable[[int], None]:
    """Passes progress on a few times a second, not at every step."""
    unsent, last = 0, time.monotonic()

    def report(amount: int) -> None:
        nonlocal unsent, last
        if not isinstance(amount, int | float | np.number) or not 0 <= amount < MOST_WORK:
            raise BenchError(
                f"the attack reported {one_line(repr(amount), 80)} as work done, not a number of 0 or more"
            )
        unsent += amount
        if time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
            send(WorkDone(int(unsent)))
            unsent, last = unsent - int(unsent), time.monotonic()

    return report
