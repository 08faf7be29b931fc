"""A name for what a class does, for classes that no package gives a version: changed code, another name."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator
from typing import Any

_PLAIN = (bool, bytes, complex, float, int, str, type(None), type(...))
_LEFT_OUT = (
    "__annotations__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__static_attributes__",
    "__weakref__",
)

_AROUND = ("__func__", "__wrapped__", "fget", "func", "python_function")
"""Where methods, properties, decorated and compiled functions keep the function that they are made of."""


def of_class(given: type) -> str:
    """sha256 of a class's code, and of everything in the same module that it refers to.

    Of another module's things only the names count. Comments, docstrings of functions aside, and places in a file do not.
    """
    digest = hashlib.sha256()
    for part in _Walk(given.__module__).parts(given):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


class _Walk:
    """Goes over what a class is made of, each thing once."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._seen: set[int] = set()

    def parts(self, thing: Any) -> Iterator[str]:
        if isinstance(thing, _PLAIN):
            yield repr(thing)
        elif isinstance(thing, types.ModuleType):
            yield thing.__name__
        elif id(thing) in self._seen:
            yield "again"
        else:
            self._seen.add(id(thing))
            yield from self._inside(thing)

    def _inside(self, thing: Any) -> Iterator[str]:
        yield f"{type(thing).__name__} {getattr(thing, '__qualname__', '')}"
        if isinstance(thing, list | tuple | frozenset | set):
            for one in sorted(thing, key=repr) if isinstance(thing, frozenset | set) else thing:
                yield from self.parts(one)
        elif isinstance(thing, dict):
            for name, value in thing.items():
                yield from (str(name), *self.parts(value))
        elif isinstance(thing, types.CodeType):
            yield thing.co_code.hex()
            yield from (*thing.co_names, *thing.co_varnames)
            for constant in thing.co_consts:
                yield from self.parts(constant)
        elif hasattr(thing, "tobytes"):  # an array
            yield hashlib.sha256(thing.tobytes()).hexdigest()
        elif isinstance(thing, type | types.FunctionType):
            if thing.__module__ == self._module:
                yield from self._own(thing)
        else:
            for name in _AROUND:
                yield from self.parts(getattr(thing, name, None))

    def _own(self, thing: type | types.FunctionType) -> Iterator[str]:
        """A class or a function of the module."""
        if isinstance(thing, type):
            for name, value in vars(thing).items():
                if name not in _LEFT_OUT and not name.startswith("_abc_"):
                    yield from (name, *self.parts(value))
            for base in thing.__bases__:
                yield from self.parts(base)
        else:
            yield from self.parts(thing.__code__)
            yield from self.parts(thing.__defaults__)
            for cell in thing.__closure__ or ():
                yield from self.parts(cell.cell_contents) if _is_full(cell) else ()
            for name in thing.__code__.co_names:
                if name in thing.__globals__:
                    yield from self.parts(thing.__globals__[name])


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
