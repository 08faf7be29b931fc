"""Artifacts for machines without a shared folder: `BENCH_ARTIFACTS` names a folder by any URL that fsspec knows.

What is trained is copied there, and what is missing in the cache folder is looked for there. It holds data only, and
its digests are checked when it is loaded, as anywhere else.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from bench.api import BenchError, UsageError
from bench.support.files import atomic_write

FILES = ("weights.npz", "artifact.json")  # in this order: an artifact is there when its JSON is


def pull(name: str, folder: Path) -> bool:
    """Brings the artifact of this name into a folder; False if there is none, or no such place."""
    if (place := _place()) is None:
        return False
    files, root = place
    try:
        if not files.exists(f"{root}/{name}/artifact.json"):
            return False
        for file in FILES:
            with files.open(f"{root}/{name}/{file}", "rb") as there, atomic_write(folder / name / file) as here:
                shutil.copyfileobj(there, here)
        return True
    except (OSError, ImportError) as error:
        raise BenchError(f"cannot read artifact {name} in BENCH_ARTIFACTS: {error}") from error


def push(path: Path) -> None:
    """Copies an artifact's folder there, for other machines."""
    if (place := _place()) is None:
        return
    files, root = place
    try:
        files.makedirs(f"{root}/{path.name}", exist_ok=True)
        for file in FILES:
            with (path / file).open("rb") as here, files.open(f"{root}/{path.name}/{file}", "wb") as there:
                shutil.copyfileobj(here, there)
    except (OSError, ImportError) as error:
        raise BenchError(f"cannot copy artifact {path.name} to BENCH_ARTIFACTS: {error}") from error


def offer(path: Path) -> None:
    """Copies an artifact's folder there unless it is there already."""
    if (path / "artifact.json").exists() and (place := _place()) is not None:
        files, root = place
        if not files.exists(f"{root}/{path.name}/artifact.json"):
            push(path)


def _place() -> tuple[Any, str] | None:
    url = os.environ.get("BENCH_ARTIFACTS")
    if not url:
        return None
    try:
        import fsspec
    except ModuleNotFoundError:
        raise UsageError(
            "BENCH_ARTIFACTS needs fsspec: pip install fsspec, and what its URL needs (s3fs, gcsfs)"
        ) from None
    try:
        files, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"BENCH_ARTIFACTS is '{url}': {error}") from error
    return files, root.rstrip("/")
