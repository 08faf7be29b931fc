"""What every process has in common that is started to work for a driver, be it on attacks, on a key search or as referee."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.process import BaseProcess
from pathlib import Path

from bench.errors import BenchError
from bench.executors.channel import Channel, ChannelClosed, Frame, pair
from bench.support.text import one_line, several_lines

SECONDS_TO_DIE = 5
_PR_SET_PDEATHSIG = 1


class Child:
    """A process that was started afresh, and the channel to it."""

    def __init__(self, process: BaseProcess, channel: Channel) -> None:
        self.process, self.channel, self._killed = process, channel, False

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def frames(self) -> list[Frame]:
        """What it has sent by now; raises ChannelClosed once it is dead, even where what it has forked keeps the socket."""
        ended = self.process.exitcode is not None  # asked first: what was sent before the end is then there to be read
        frames = self.channel.waiting()
        if ended and not frames:
            raise ChannelClosed("it has ended")
        return frames

    def receive(self, seconds: float = 0.5) -> Frame:
        """The next frame, however long it takes; raises ChannelClosed if the process ends before."""
        while True:
            ended = self.process.exitcode is not None
            frame = self.channel.receive(0 if ended else seconds)
            if frame is not None:
                return frame
            if ended:
                raise ChannelClosed("it has ended")

    def ended(self) -> str:
        """Why it is no more, after ChannelClosed; a process that only closed its end is killed."""
        self.process.join(SECONDS_TO_DIE)
        code = self.process.exitcode
        self.kill()
        return "it closed its connection" if code is None else f"exit code {code}"

    def stopped(self) -> bool:
        """Whether it is halted by SIGSTOP or the like; False where there is no /proc to tell."""
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def kill(self) -> None:
        """Ends it at once, and with it what it has started, whatever they are doing."""
        if not self._killed:  # later, its number may be another's
            self._killed = True
            kill_group(self.process)
            self.channel.close()


def spawn_child(target: Callable[..., None], name: str, *arguments: object) -> Child:
    """A process that is started afresh, so that it never had the key, in a group of its own.

    `target` is called there with its end of a channel and the arguments. The main program is not imported there.
    """
    channel, far_end = pair()
    with far_end:
        return Child(spawn_process(target, name, far_end, *arguments), channel)


def spawn_process(target: Callable[..., None], name: str, connection: socket.socket, *arguments: object) -> BaseProcess:
    """The same, for a channel over a socket that is there already."""
    context = multiprocessing.get_context("spawn")
    given = (os.getpid(), target, connection, *arguments)
    process = context.Process(target=_begin, args=given, daemon=True, name=name)
    _in_starting_thread(lambda: _start(process))
    return process


def kill_group(process: BaseProcess) -> None:
    """Ends a process of `spawn_process` at once, with all that it has started in its group."""
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has no group yet, or nobody is left in it
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join(SECONDS_TO_DIE)  # one that waits for a dead disk dies later


def _start(process: BaseProcess) -> None:
    with _without_main_program():
        process.start()


class _Starter:
    """A thread that starts all children and lives as long as this process.

    The kernel ends a child with the thread that started it, and a caller's thread may be a short-lived one.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.actions: queue.SimpleQueue[tuple[Callable[[], None], Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="bench-starter").start()

    def _work(self) -> None:
        while True:
            action, done = self.actions.get()
            try:
                action()
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)


_STARTING = threading.Lock()
_starter: _Starter | None = None


def _in_starting_thread(action: Callable[[], None]) -> None:
    global _starter
    with _STARTING:
        if _starter is None or _starter.pid != os.getpid():  # a forked process has none of its parent's threads
            _starter = _Starter()
        done: Future[None] = Future()
        _starter.actions.put((action, done))
    done.result()


@contextlib.contextmanager
def _without_main_program() -> Iterator[None]:
    """multiprocessing has every child run the main program's file again, and gives it the arguments.

    A user's script would evaluate everything once more, and may have the key in it.
    """
    main, arguments = sys.modules["__main__"], sys.argv
    sys.modules["__main__"], sys.argv = types.ModuleType("__main__"), arguments[:1]
    try:
        yield
    finally:
        sys.modules["__main__"], sys.argv = main, arguments


def _begin(parent: int, target: Callable[..., None], connection: socket.socket, *arguments: object) -> None:
    """The start of a child: leaves Ctrl-C to the driver, takes SIGTERM as usual, ends with the driver, come what may."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()  # a group of its own, so that what it starts can be ended with it
    _end_with(parent)
    target(Channel(connection), *arguments)


def _end_with(parent: int) -> None:
    """Has the kernel kill this process when its parent ends; where it cannot, a thread looks after it.

    The thread alone would not do: it never gets its turn while an attack holds the interpreter's lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)


def error_report(error: BaseException) -> tuple[str, str]:
    """One line for the user, and the traceback of an error that nobody expected; it has code lines, and no values."""
    words = one_line(error)
    if isinstance(error, BenchError):
        return words, ""
    try:
        detail = several_lines(traceback.format_exc())
    except Exception:  # an error can raise another where it is asked for its words
        detail = ""
    return one_line(f"{type(error).__name__}: {words}").rstrip(": "), detail
