"""What every process has in common that is started to work for a driver, be it on attacks or on a key search."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from bench.errors import BenchError

_STARTING = threading.Lock()


def spawn_child(target: Callable[..., None], name: str, *arguments: object) -> tuple[BaseProcess, Connection]:
    """A process that is started afresh, so that it never had the key, and this end of a pipe to it.

    `target` is called there with its own end of the pipe and the arguments. The main program is not imported there.
    """
    context = multiprocessing.get_context("spawn")
    pipe, far_end = context.Pipe()
    process = context.Process(target=target, args=(far_end, *arguments), daemon=True, name=name)
    with _STARTING, _without_main_program():
        process.start()
    far_end.close()
    return process, pipe


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


def prepare_child() -> None:
    """Leaves Ctrl-C to the driver, takes SIGTERM as usual, and ends this process when the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def error_report(error: Exception) -> tuple[str, str]:
    """One line for the user, and the traceback of an error that nobody expected; it has code lines, and no values."""
    if isinstance(error, BenchError):
        return str(error), ""
    return " ".join(f"{type(error).__name__}: {error}".split()), traceback.format_exc()
