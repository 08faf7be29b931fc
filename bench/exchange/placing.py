"""Puts the image files of an import where they belong: all of them or none, and never in place of one that is there.

They are first written beside their place, into a folder `.import-…`; the transaction that stores their rows links them in
as its last step. Whatever fails takes the links back. What a killed import leaves, `clean_up` takes away: its folder says
which files it had, and the database which of them it has stored.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlalchemy.engine import Engine as Database

from bench.api import BenchError
from bench.store import imports
from bench.support.files import atomic_write, cannot_write, sync_folder

PREFIX = ".import-"
LOCK = "lock"


class Placed:
    """The files of an import on their way into the folder of images."""

    def __init__(self, folder: Path, staged: Path) -> None:
        self._folder, self._staged = folder, staged
        self._linked: list[Path] = []
        self._made: list[Path] = []

    def link(self, names: Mapping[str, str]) -> None:
        """Links these files in by their names, which stand for the sha256 they have."""
        try:
            for name in sorted(names):
                self._link(name, self._folder / name)
            for folder in {path.parent for path in self._linked} | {path.parent for path in self._made}:
                sync_folder(folder)
        except OSError as error:
            raise BenchError(cannot_write(self._folder, error)) from error

    def _link(self, name: str, target: Path) -> None:
        if not target.parent.exists():
            target.parent.mkdir()
            self._made.append(target.parent)
        staged = self._staged / name
        if target.exists() or target.is_symlink():
            if target.is_symlink() or target.read_bytes() != staged.read_bytes():
                raise BenchError(f"{target} is there already and holds other images: nothing was taken over")
            return
        try:
            os.link(staged, target)
        except FileExistsError:
            raise BenchError(f"{target} was written by somebody else just now: run the same command again") from None
        except OSError:  # a disk without links
            with staged.open("rb") as source, target.open("xb") as copy:
                self._linked.append(target)
                shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
        else:
            self._linked.append(target)

    def take_back(self) -> None:
        """Removes what was linked in: its rows were not stored."""
        for path in self._linked:
            path.unlink(missing_ok=True)
        for folder in self._made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._linked, self._made = [], []


@contextlib.contextmanager
def staging(folder: Path, files: Mapping[str, Path]) -> Iterator[Placed]:
    """Copies files, by their names in the folder, beside their places; what goes wrong in the block takes them back."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    staged = None
    try:
        with contextlib.ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                staged = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
                fcntl.flock(stack.enter_context((staged / LOCK).open("w")), fcntl.LOCK_EX)
            except OSError as error:
                raise BenchError(cannot_write(folder, error)) from error
            for name, path in files.items():
                with atomic_write(staged / name) as stream:
                    stream.write(path.read_bytes())
            placed = Placed(folder, staged)
            try:
                yield placed
            except BaseException:
                placed.take_back()
                raise
    finally:
        if staged is not None:
            shutil.rmtree(staged, ignore_errors=True)
        for path in new:  # empty ones only
            with contextlib.suppress(OSError):
                path.rmdir()


def clean_up(folder: Path, database: Database) -> None:
    """Takes away what imports that were killed have left in a folder."""
    for staged in sorted(folder.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError), (staged / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # it is under way
            names = {str(path.relative_to(staged)) for path in staged.glob("*/*.npz")}
            with database.connect() as connection:
                orphans = names - imports.used_images(connection, names)
            for name in orphans:
                if (folder / name).exists() and (folder / name).samefile(staged / name):
                    remove(folder, name)
            shutil.rmtree(staged, ignore_errors=True)


def remove(folder: Path, name: str) -> None:
    """Removes a file of images, and its cell's folder if it was the last."""
    (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (folder / name).parent.rmdir()
