"""Items made ahead of their use, in a thread of their own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def prefetched(items: Iterable[T], ahead: int = 2) -> Generator[T]:
    """The same items in the same order, up to so many made in advance; what goes wrong in making one is raised here.

    Closed (or dropped) before its end, it asks for no further items.
    """
    ready: queue.Queue[tuple[bool, Any]] = queue.Queue(ahead)
    stopped = threading.Event()

    def put(is_item: bool, value: Any) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((is_item, value), timeout=0.1)
                return

    def fill() -> None:
        try:
            for item in items:
                put(True, item)
                if stopped.is_set():
                    return
            put(False, None)
        except BaseException as error:
            put(False, error)

    thread = threading.Thread(target=fill, daemon=True, name="prefetch")
    thread.start()
    try:
        while True:
            is_item, value = ready.get()
            if is_item:
                yield value
            elif value is None:
                return
            else:
                raise value
    finally:
        stopped.set()
        thread.join()
