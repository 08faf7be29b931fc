"""A process's environment: what is taken out of it, and what others are started with."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


def wipe(name: str) -> None:
    """Takes a variable out of the environment, and overwrites it where /proc would show it as long as the process lives."""
    import posix

    length = len(os.fsencode(os.environ.pop(name)))
    posix.environ.pop(name.encode(), None)  # what os.environ was made from
    at = _in_first_environment(name) if sys.platform == "linux" else None
    if at is not None:
        ctypes.memset(at, 0, length)


def _in_first_environment(name: str) -> int | None:
    """Where in memory the value stands that the process was started with."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, stop = int(fields[47]), int(fields[48])  # env_start and env_end of proc(5)
    if not 0 < start < stop:
        return None
    wanted = f"\0{name}=".encode()
    at = (b"\0" + ctypes.string_at(start, stop - start)).find(wanted)
    return None if at < 0 else start + at + len(wanted) - 1
