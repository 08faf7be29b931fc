"""Reads pickles that hold nothing but numpy arrays and plain containers, and refuses every other one unread.

A pickle can run anything when it is read. This reader makes what is listed here, by functions of its own, and refuses
everything else by name before any of it is run. Nothing of numpy is handed out: an array is made in one place, of
numbers only, from exactly as many bytes as its shape says.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import IO, Any, ClassVar, NoReturn

import numpy as np

from bench.errors import BenchError

NUMBERS = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
OBJECTS = frozenset({"O", "O4", "O8"})
"""An array of these is made of what is in the pickle anyway; never of bytes."""
MOST_DIMENSIONS = 8
MOST_MADE = 4
"""Bytes of arrays and text that may be made per byte of the pickle: an honest one makes each once or twice."""


def load_arrays(stream: IO[bytes], *, encoding: str = "bytes") -> Any:
    """The unpickled object; raises BenchError, having run nothing, if the pickle needs more than arrays."""
    counted = _Counted(stream)
    try:
        return _finished(_ArraysOnly(counted, encoding=encoding).load(), {})
    except BenchError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        reason = ascii(str(error))[1:-1][:200]
        raise BenchError(f"a pickle that cannot be read, or is cut short: {reason}") from error


class _Counted:
    """A stream that knows how much was read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.count = stream, 0

    def read(self, size: int = -1) -> bytes:
        return self._took(self._stream.read(size))

    def readline(self) -> bytes:
        return self._took(self._stream.readline())

    def _took(self, part: bytes) -> bytes:
        self.count += len(part)
        return part


class _Numbers:
    """What a pickle calls a dtype: a kind of number, whose order of bytes may be told later."""

    def __init__(self, kind: str) -> None:
        self._kind, self._order, self.objects = kind, "=", kind in OBJECTS

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or _text(state[1]) not in ("<", ">", "|", "="):
            _refuse("a dtype that is no kind of number")
        if any(part is not None for part in state[2:5]):
            _refuse("a dtype of several fields")
        self._order = _text(state[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._order.replace("|", "=") + self._kind)


class _Array:
    """An array that a pickle makes first, and fills then."""

    def __init__(self, made: Callable[[Any, Any, Any, Any], np.ndarray]) -> None:
        self._made, self.value = made, np.empty(0, np.uint8)
        self.objects: list[Any] | None = None
        self.shape: tuple[int, ...] = (0,)

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            _refuse("an array of another form")
        shape, kind, fortran, content = state[-4:]
        if isinstance(kind, _Numbers) and kind.objects and isinstance(content, list) and not fortran:
            self.objects, self.shape = content, _sizes(shape)
            if math.prod(self.shape) != len(content):
                _refuse(f"an array of shape {self.shape} of {len(content)} objects")
            return
        self.value = self._made(content, kind, shape, "F" if fortran else "C")


class _ArraysOnly(pickle._Unpickler):
    """Finds what is listed in `_found`, and nothing else.

    It is the reader in Python: the one in C makes as much room as a damaged or hostile pickle says before it has read
    any of it (for a `bytearray`, and for its list of what was read before).
    """

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, stream: _Counted, *, encoding: str) -> None:
        super().__init__(stream, encoding=encoding)
        self._stream, self._spent, self._ndarray = stream, 0, object()
        self._found: dict[tuple[str, str], Any] = {
            ("numpy", "ndarray"): self._ndarray,
            ("numpy", "dtype"): self._numbers,
            ("collections", "OrderedDict"): dict,
            ("_codecs", "encode"): self._latin1,
            ("__builtin__", "bytes"): _no_bytes,
        }
        for module in ("numpy.core", "numpy._core"):
            self._found[f"{module}.multiarray", "_reconstruct"] = self._empty
            self._found[f"{module}.multiarray", "scalar"] = self._scalar
            self._found[f"{module}.numeric", "_frombuffer"] = self._array
        for name in ("FlatMap", "FlatMapping", "frozendict"):
            self._found["haiku._src.data_structures", name] = dict

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._found:
            _refuse(ascii(f"{module}.{name}")[1:-1][:100])
        return self._found[module, name]

    def load_bytearray8(self) -> None:
        size = int.from_bytes(self.read(8), "little")  # type: ignore[attr-defined]
        content = self.read(size)  # type: ignore[attr-defined]
        if len(content) != size:
            raise EOFError("its bytes end too early")
        self.append(bytearray(content))  # type: ignore[attr-defined]

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def _latin1(self, text: str, encoding: str = "latin1") -> bytes:
        """Stands in for _codecs.encode, by which pickles of protocol 2, written by Python 3, hold bytes."""
        if encoding not in ("latin1", "latin-1"):
            _refuse(f"text encoded as {ascii(encoding)[:40]}")
        self._spend(len(text))
        return text.encode("latin1")

    def _numbers(self, kind: Any, align: Any = False, copy: Any = False) -> _Numbers:
        name = _text(kind).lstrip("<=|")
        if name not in NUMBERS | OBJECTS:
            _refuse(f"numbers of type {name[:20]!r}")
        return _Numbers(name)

    def _empty(self, kind: Any, shape: Any, code: Any) -> _Array:
        if kind is not self._ndarray:
            _refuse("an array of another class")
        return _Array(self._array)

    def _scalar(self, kind: Any, content: Any) -> Any:
        return self._array(content, kind, (), "C")[()]

    def _array(self, content: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
        """A new array of numbers from exactly the bytes that its shape needs."""
        if isinstance(content, str):
            content = content.encode("latin1")
        if not isinstance(kind, _Numbers) or kind.objects or not isinstance(content, bytes | bytearray):
            _refuse("an array of something else than numbers")
        sizes = _sizes(shape)
        if math.prod(sizes) * kind.dtype.itemsize != len(content):
            _refuse(f"an array of shape {sizes} in {len(content)} bytes")
        self._spend(len(content))
        return (
            np.frombuffer(content, kind.dtype)
            .reshape(sizes, order="F" if order == "F" else "C")
            .astype(kind.dtype.newbyteorder("="))
        )

    def _spend(self, size: int) -> None:
        self._spent += size
        if self._spent > MOST_MADE * self._stream.count + 2**20:
            _refuse("far more than it holds")


def _no_bytes() -> bytes:
    """Stands in for `bytes`, which old protocols call for those of an empty array."""
    return b""


def _finished(value: Any, done: dict[int, Any]) -> Any:
    """The same containers with arrays in place of what was made of them; what is in it twice is looked at once."""
    if isinstance(value, _Array) and value.objects is None:
        return value.value
    if isinstance(value, _Numbers):
        return value.dtype
    if not isinstance(value, dict | list | tuple | _Array):
        return value
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, _Array):
        box = done[id(value)] = np.empty(len(value.objects or ()), object)
        for place, part in enumerate(value.objects or ()):
            box[place] = _finished(part, done)
        return box.reshape(value.shape)
    if isinstance(value, tuple):
        done[id(value)] = tuple(_finished(part, done) for part in value)
        return done[id(value)]
    made: Any = {} if isinstance(value, dict) else []
    done[id(value)] = made
    if isinstance(value, dict):
        made.update({key: _finished(part, done) for key, part in value.items()})
    else:
        made.extend(_finished(part, done) for part in value)
    return made


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if len(sizes) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size < 2**40 for size in sizes):
        _refuse(f"an array of shape {str(shape)[:60]}")
    return sizes


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("latin1")
    return value if isinstance(value, str) else _refuse(f"{type(value).__name__} where there is text")


def _refuse(what: str) -> NoReturn:
    raise BenchError(f"refused a pickle that asks for {what}: only numpy arrays and mappings are read")
