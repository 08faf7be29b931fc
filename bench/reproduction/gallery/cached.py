"""Arrays behind the figures, computed once and cached in the home folder by what they are made of."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import BenchError
from bench.support.cache import home
from bench.support.files import atomic_write
from bench.support.fingerprint import fingerprint

VERSION = 1
"""Of the computations: another number, and everything is computed anew."""

Arrays = dict[str, np.ndarray]


def cached(description: Mapping[str, Any], compute: Callable[[], Arrays]) -> Arrays:
    """The arrays that a description stands for. It names keys, and never holds one."""
    path = _path(description)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        pass
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise BenchError(f"{path} cannot be read ({error}): remove it, and it is computed again") from error
    arrays = compute()
    with atomic_write(path) as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return arrays


def is_cached(description: Mapping[str, Any]) -> bool:
    return _path(description).exists()


def _path(description: Mapping[str, Any]) -> Path:
    return home() / "gallery" / f"{fingerprint({**description, 'version': VERSION})[:16]}.npz"
