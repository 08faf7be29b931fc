"""The adversarial images of a run: one lossless compressed file per shard, beside the database."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np

from bench.api import BenchError
from bench.support.files import atomic_write
from bench.support.fingerprint import of_file


def folder_of(db: str) -> Path:
    """Where the images of a database are: beside an SQLite file, else in the current folder."""
    from bench.store.database import url_of

    url = url_of(db)
    if url.get_backend_name() == "sqlite" and url.database:
        return Path(url.database).with_suffix(".images")
    return Path("results") / f"{url.database}.images"


def save(folder: Path, cell_fingerprint: str, start: int, stop: int, images: np.ndarray) -> tuple[str, str]:
    """Writes a shard's images (N×H×W×3, float32); returns the file's name inside the folder, and its sha256."""
    packed = io.BytesIO()
    np.savez_compressed(packed, images=images)
    digest = hashlib.sha256(packed.getbuffer()).hexdigest()
    name = name_of(cell_fingerprint, start, stop, digest)
    with atomic_write(folder / name) as stream:
        stream.write(packed.getbuffer())
    return name, digest


def name_of(cell_fingerprint: str, start: int, stop: int, sha256: str) -> str:
    """What the file of a shard's images is called inside the folder, by its cell, its examples and its content.

    Part of the digest is in it: of two drivers with the same shard, none writes over what the other stored.
    """
    return f"{_folder(cell_fingerprint)}/{start:06d}-{stop:06d}-{sha256[:8]}.npz"


def are_of(cell_fingerprint: str, name: str) -> bool:
    """Whether a file of this name holds images of this cell."""
    return name.startswith(f"{_folder(cell_fingerprint)}/")


def load(folder: Path, name: str, sha256: str | None) -> np.ndarray:
    """A shard's images; raises BenchError, naming the file, if they are not what was saved."""
    path = folder / name
    if not path.exists():
        raise BenchError(f"{path} is missing")
    if sha256 is not None and of_file(path) != sha256:
        raise BenchError(f"{path} was changed since it was written (sha256 differs)")
    try:
        with np.load(path, allow_pickle=False) as file:
            return np.asarray(file["images"])
    except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise BenchError(f"{path} cannot be read: {error}") from error


def _folder(cell_fingerprint: str) -> str:
    return cell_fingerprint[:16]
