"""Where an object holds a key: its attributes, what they hold, the closures of its functions, its class."""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bench.api import Plugin

MOST = 100_000  # things that are looked at
FOREIGN = ("tensorflow", "keras", "numpy", "torch")
"""Objects of these packages are not taken apart; their arrays are read."""


def place_of(key: int, owner: object, others: Mapping[str, Any]) -> str | None:
    """Where `owner`, its class or the others (by name) hold the key, as a number or in a text; None if nowhere."""
    queue = deque([*_attributes(owner, type(owner).__name__), *((value, name) for name, value in others.items())])
    seen: set[int] = set()
    kept = []  # so that no id is given twice
    while queue and len(seen) < MOST:
        value, path = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kept.append(value)
        if _is(key, value):
            return path
        queue.extend(_parts(value, path))
    return None


def _attributes(owner: object, name: str) -> Iterator[tuple[Any, str]]:
    """An object's attributes, and those of its class up to the contract's own."""
    yield from ((value, f"{name}.{attribute}") for attribute, value in vars(owner).items())
    for kind in type(owner).__mro__:
        if kind.__module__ != Plugin.__module__ and kind is not object:
            yield from ((value, f"{name}.{attribute}") for attribute, value in vars(kind).items())


def _is(key: int, value: object) -> bool:
    numbers, text = (key, key % 2**64), str(key)
    if isinstance(value, str):
        return text in value
    if isinstance(value, bytes | bytearray):
        return text.encode() in value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value) in numbers
    array = _array(value)
    if array is not None and array.dtype.kind in "iu":
        return bool(np.isin(array.astype(np.uint64), np.uint64(key % 2**64)).any())
    return False


def _array(value: Any) -> np.ndarray | None:
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__.split(".")[0] in FOREIGN and hasattr(value, "numpy"):
        try:
            return np.asarray(value.numpy())
        except Exception:  # a tensor of a graph has no value
            return None
    return None


def _parts(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """What a value is made of, and where."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield name, f"{path} (a key of it)"
            yield part, f"{path}[{name!r}]"
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from ((part, f"{path}[{place}]") for place, part in enumerate(value))
    elif isinstance(value, functools.partial):
        yield from ((part, f"{path}(…)") for part in (value.func, value.args, value.keywords))
    elif isinstance(value, functools._lru_cache_wrapper):
        yield from ((part, f"{path} (its cache)") for part in gc.get_referents(value) if isinstance(part, dict))
        yield value.__wrapped__, path
    elif isinstance(value, types.FunctionType):
        cells = [cell for cell in value.__closure__ or () if cell != types.CellType()]
        yield from ((cell.cell_contents, f"{path} (its closure)") for cell in cells)
        yield value.__defaults__, f"{path} (its defaults)"
        yield vars(value), path
    elif isinstance(value, types.MethodType | classmethod | staticmethod):
        yield value.__func__, path
    elif hasattr(value, "python_function"):  # of tf.function
        yield value.python_function, path
    elif not isinstance(value, type | types.ModuleType) and type(value).__module__.split(".")[0] not in FOREIGN:
        slots = {name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())}
        yield from ((part, f"{path}.{name}") for name, part in {**getattr(value, "__dict__", {}), **slots}.items())
