"""Reads pickles that hold nothing but numpy arrays and plain containers, and refuses every other one unread.

A pickle can run anything when it is read. This reader makes what is listed here, and refuses everything else by name
before any of it is run.
"""

from __future__ import annotations

import pickle
from typing import IO, Any

import numpy as np

from bench.errors import BenchError


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """Stands in for _codecs.encode, by which pickles of protocol 2, written by Python 3, hold bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise BenchError(f"refused a pickle that encodes text as {encoding}: only numpy arrays and mappings are read")
    return text.encode("latin1")


def _admitted() -> dict[tuple[str, str], Any]:
    """What may be asked for, under the names of old and new numpy, and what is given for it."""
    arrays = np.empty(0).__reduce__()[0], np.float32(0).__reduce__()[0]
    admitted: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        admitted[module, "_reconstruct"], admitted[module, "scalar"] = arrays
    for module in ("numpy.core.numeric", "numpy._core.numeric"):
        admitted[module, "_frombuffer"] = np.empty(0).__reduce_ex__(5)[0]
    for name in ("FlatMap", "FlatMapping", "frozendict"):
        admitted["haiku._src.data_structures", name] = dict
    return {**admitted, ("collections", "OrderedDict"): dict, ("_codecs", "encode"): _latin1}


class _ArraysOnly(pickle.Unpickler):
    _found = _admitted()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._found:
            raise BenchError(f"refused a pickle that asks for {module}.{name}: only numpy arrays and mappings are read")
        return self._found[module, name]


def load_arrays(stream: IO[bytes], *, encoding: str = "bytes") -> Any:
    """The unpickled object; raises BenchError, having run nothing, if the pickle needs more than arrays."""
    try:
        return _ArraysOnly(stream, encoding=encoding).load()
    except BenchError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise BenchError(f"a pickle that cannot be read, or is cut short: {error}") from error
