"""Writing files safely: a file is there when it is complete, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bench.errors import BenchError


@contextlib.contextmanager
def atomic_write(path: Path, *, private: bool = False, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete and on disk: never half-written.

    `durable=False` leaves it to the system when it reaches the disk: for many files that can be made again.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as stream:
            temporary = Path(stream.name)
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
            if not private:
                os.fchmod(stream.fileno(), 0o644)
        temporary.replace(path)
        temporary = None
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise BenchError(cannot_write(path, error)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Has the names in a folder reach the disk: a file that is on disk can be lost by its name."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(path: Path, error: OSError) -> str:
    """One line that says why a file could not be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no room to write {path}: free some space there, or point BENCH_HOME (or --db) to another disk"
    return (
        f"cannot write {path}: {error.strerror or error}; check the folder, or choose another with BENCH_HOME or --db"
    )
