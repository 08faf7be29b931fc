"""Reads a file of results that somebody else made: data only, every size and digest checked before it is believed.

Nothing is unpacked to a disk here, no name of the archive becomes a path, and no pickle is ever read.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from bench.api import BenchError
from bench.exchange.layout import FORMATS, Format
from bench.exchange.limits import MOST_BYTES, MOST_MEMBERS
from bench.store import row_format

MANIFEST = "manifest.json"
MEMBERS = {  # what may be in an archive, and how large it may be
    MANIFEST: (re.compile(r"manifest\.json"), 2**28),
    "rows": (re.compile(r"rows/\d{1,6}\.npz"), 2**30),
    "images": (re.compile(r"images/[0-9a-f]{16}/\d{6,8}-\d{6,8}(-[0-9a-f]{8})?\.npz"), 2**30),
    "weights": (re.compile(r"weights/[0-9a-f]{16}/(weights\.npz|artifact\.json)"), 2**32),
}
MAX_RATIO = 200  # what is packed tighter than this is no result of a run
HEADER = 4096


class RefusedArchive(BenchError):
    """An archive that is not what it should be."""


class Archive:
    """An archive whose every member was checked against its manifest."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        try:
            self._zip = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise RefusedArchive(f"{path} does not exist") from None
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise RefusedArchive(f"{path} is no archive of results, or is cut short: {error}") from error
        self._members = self._checked_members()
        self.manifest = self._checked_manifest()
        self.format: Format = FORMATS[self.manifest["format"]]
        self.rows_version = self._checked_rows_version()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def names(self, kind: str) -> list[str]:
        """The members of a kind: rows, images or weights."""
        return sorted(name for name in self.manifest["files"] if name.startswith(f"{kind}/"))

    def read(self, name: str) -> bytes:
        """A member's bytes, which are those its manifest speaks of."""
        said = self.manifest["files"].get(name)
        if said is None:
            self.refuse(f"{name} is missing in it")
        content = self._read(name)
        if hashlib.sha256(content).hexdigest() != said:
            self.refuse(f"{name} was changed (sha256 differs)")
        return content

    def refuse(self, reason: str) -> NoReturn:
        raise RefusedArchive(f"{self._name} is refused: {reason}")

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        members: dict[str, zipfile.ZipInfo] = {}
        found = self._zip.infolist()
        if len(found) > MOST_MEMBERS or sum(info.file_size for info in found) > MOST_BYTES:
            self.refuse(f"it has {len(found)} members, or more than {MOST_BYTES} bytes in them")
        for info in found:
            limit = next((size for pattern, size in MEMBERS.values() if pattern.fullmatch(info.filename)), None)
            if limit is None:
                self.refuse(f"it has a member called {info.filename[:80]!r}, which no export makes")
            if info.filename in members:
                self.refuse(f"it has two members called {info.filename}")
            if info.file_size > min(limit, MAX_RATIO * info.compress_size + 2**20):
                self.refuse(f"{info.filename} would unpack to {info.file_size} bytes, more than a result can have")
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                self.refuse(f"{info.filename} is packed in a way no export uses")
            members[info.filename] = info
        return members

    def _checked_manifest(self) -> dict[str, Any]:
        if MANIFEST not in self._members:
            self.refuse(f"it has no {MANIFEST}")
        manifest = self.json(self._read(MANIFEST), MANIFEST)
        said = manifest.get("format") if isinstance(manifest, dict) else None
        if not isinstance(said, str) or said not in FORMATS:
            known = " and ".join(FORMATS)
            self.refuse(f"its format is {ascii(said)[:80]}, and this bench reads {known}: update bench, if it is newer")
        files = manifest.get("files")
        if not isinstance(files, dict) or not all(isinstance(value, str) for value in files.values()):
            self.refuse("its manifest names no files")
        if odd := files.keys() ^ (self._members.keys() - {MANIFEST}):
            self.refuse(f"{min(odd)} is in its manifest or among its members, but not in both")
        return dict(manifest)

    def _checked_rows_version(self) -> int:
        version = self.format.rows_version or self.manifest.get("rows_version")
        if type(version) is not int:
            self.refuse("its manifest does not say of which version its rows are")
        try:
            row_format.columns(version)
        except BenchError as error:
            self.refuse(str(error))
        return version

    def _read(self, name: str) -> bytes:
        try:
            return self._zip.read(self._members[name])
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, zlib.error) as error:
            self.refuse(f"{name} cannot be read: {error}")

    def json(self, content: bytes, name: str) -> Any:
        try:
            return json.loads(content, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            self.refuse(f"{name} is no JSON: {error}")

    def arrays(self, content: bytes, name: str, limit: int = 2**30) -> dict[str, np.ndarray]:
        """The arrays of an .npz: plain numbers whose size in the file is the size they declare, `limit` bytes at most."""
        try:
            return _arrays(content, limit)
        except (ValueError, zipfile.BadZipFile, OSError, EOFError, KeyError, NotImplementedError, zlib.error) as error:
            self.refuse(f"{name} is no file of arrays: {' '.join(str(error).split())[:200]}")


def _arrays(content: bytes, limit: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        for info in packed.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename or len(name) > 300 or name in found:
                raise ValueError(f"it has a member called {info.filename[:80]!r}")
            with packed.open(info) as stream:
                shape, fortran, dtype = _header(stream)
                size = math.prod(shape) * dtype.itemsize
                if dtype.hasobject or dtype.kind not in "fiub":
                    raise ValueError(f"{info.filename} holds objects, not numbers")
                if not size <= info.file_size <= size + HEADER:
                    raise ValueError(f"{info.filename} declares the shape {shape}, and has {info.file_size} bytes")
                if sum(array.nbytes for array in found.values()) + size > limit:
                    raise ValueError(f"{info.filename} would unpack to {info.file_size} bytes")
                values = np.frombuffer(stream.read(), dtype, count=math.prod(shape))
            found[name] = values.reshape(shape, order="F" if fortran else "C")
    return found


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"an array of format {version}")
    shape, fortran, dtype = read(stream, max_header_size=HEADER)
    if any(side < 0 for side in shape) or len(shape) > 8:
        raise ValueError(f"an array of shape {shape}")
    return shape, fortran, dtype


def _finite(text: str) -> float:
    """A number as JSON has it, which may be larger than a float can be."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:40]} is no number that can be stored")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
