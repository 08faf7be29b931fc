"""One at a time: a lock on a file, for processes that share a folder. It ends with its holder, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def alone(path: Path, wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock of this name; `wait` is called once if another has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
