"""Reads pickles that hold nothing but numpy arrays and plain containers, and refuses every other one unread."""

from __future__ import annotations

import io
import pickle
from typing import Any

from bench.api import BenchError

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("collections", "OrderedDict"),
}


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """How pickles of protocol 2, written by Python 3, hold bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise BenchError(f"refused a pickle that encodes text as {encoding!r}")
    return text.encode("latin1")


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        if (module, name) not in _ALLOWED:
            raise BenchError(f"refused a pickle that asks for {module}.{name}: only numpy arrays and mappings are read")
        if module == "numpy.core.multiarray":
            module = "numpy._core.multiarray"
        return super().find_class(module, name)


def load_arrays(content: bytes, *, encoding: str = "bytes") -> Any:
    """The unpickled object; raises BenchError, having run nothing, if the pickle needs more than arrays."""
    try:
        return _ArraysOnly(io.BytesIO(content), encoding=encoding).load()
    except BenchError:
        raise
    except Exception as error:
        raise BenchError(f"not a readable pickle of arrays: {error}") from error
