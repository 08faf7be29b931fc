"""What an attack may give back, checked value by value: plain arrays of fixed types, within what every store can hold.

The same check is made where the attack ran, for its author to read, and where its result is stored, come from where it may.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.api import Attacked, BenchError
from bench.support.text import one_line

FLAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:+-]{0,79}")
MOST_FLAGS = 100


class ColumnRule(NamedTuple):
    """What is said of every example: the kinds of numbers it may be given in, how it travels, and its range."""

    kinds: str  # of numpy's: b for bool, i and u for whole numbers, f for others
    dtype: str
    low: int = 0
    high: int = 0


COLUMNS = {
    "success": ColumnRule("b", "|u1"),
    "margin": ColumnRule("fiu", "<f8"),  # NaN where the source gives none
    "restart": ColumnRule("iu", "<i4", -1, 2**15 - 1),
    "target": ColumnRule("iu", "<i4", -1, 2**15 - 1),
    "gradients": ColumnRule("iu", "<i8", 0, 2**31 - 1),
    "queries": ColumnRule("iu", "<i8", 0, 2**31 - 1),
    "part": ColumnRule("iu", "<i4", -1, 2**15 - 1),
}
"""What `Attacked` has per example, but for the images; the highest numbers are those of the columns of `result`."""
_NAMES = {"b": "truth values (bool)", "fiu": "numbers", "iu": "whole numbers"}


def checked(attacked: object, shape: Sequence[int]) -> Attacked:
    """The same in plain arrays of our own; raises BenchError for what is not an attack's result on images of this shape."""
    if not isinstance(attacked, Attacked):
        raise BenchError(f"the attack returned an object of type {_type(attacked)}, not a bench.api.Attacked")
    columns = {
        name: _column(name, getattr(attacked, name), shape[0])
        for name in COLUMNS
        if name != "part" or attacked.part is not None
    }
    flags, examined = (_counts(name, getattr(attacked, name), shape[0]) for name in ("flags", "examined"))
    return Attacked(_images(attacked.images, shape), flags=flags, examined=examined, **columns)


def unchanged(images: np.ndarray) -> Attacked:
    """Images (N×H×W×3) as an attack that does nothing gives them back."""
    count = len(images)
    zeros, none = np.zeros(count, np.int64), np.full(count, -1, np.int32)
    return Attacked(images, zeros.astype(bool), zeros.astype(np.float32), none, none, zeros, zeros)


def _images(given: object, shape: Sequence[int]) -> np.ndarray:
    if not isinstance(given, np.ndarray):
        raise BenchError(f"the attack returned an object of type {_type(given)}, not an array of images")
    images = np.array(given, copy=True, subok=False, order="C")  # a subclass may say one thing and be another
    if images.shape != tuple(shape):
        raise BenchError(f"the attack returned {images.shape}, not images of shape {tuple(shape)}")
    if images.dtype != np.float32:
        raise BenchError(f"the attack returned {one_line(images.dtype, 80)} images, not float32")
    return images.astype("<f4", copy=False)


def _column(name: str, given: Any, count: int) -> np.ndarray:
    rule = COLUMNS[name]
    try:
        column = np.array(given, copy=True, subok=False)
    except Exception as error:
        raise BenchError(
            f"the attack returned {_type(given)} as {name}, not an array ({one_line(error, 200)})"
        ) from error
    if column.shape != (count,):
        raise BenchError(f"the attack returned {column.shape} values of {name} for {count} examples")
    if column.dtype.kind not in rule.kinds:
        raise BenchError(f"the attack returned {one_line(column.dtype, 80)} values of {name}, not {_NAMES[rule.kinds]}")
    if rule.high and count and not (rule.low <= column.min() and column.max() <= rule.high):
        wrong = column.min() if column.min() < rule.low else column.max()
        raise BenchError(f"the attack returned {wrong} as {name}, not a number from {rule.low} to {rule.high}")
    return column if rule.kinds == "b" else column.astype(rule.dtype)


def _counts(what: str, given: object, count: int) -> dict[str, int]:
    """Counts by the names of flags: how many of so many examples each concerns, or was looked for on."""
    if not isinstance(given, Mapping):
        raise BenchError(
            f"the attack returned an object of type {_type(given)} as {what}, not a mapping of names to counts"
        )
    flags: dict[str, int] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not FLAG.fullmatch(name):
            raise BenchError(
                f"the attack returned {_shown(name)} as the name of a flag, not a word such as zero-gradient"
            )
        if len(flags) == MOST_FLAGS:
            raise BenchError(f"the attack returned {len(given)} flags, not {MOST_FLAGS} at most")
        flags[str(name)] = _number(name, value, count)
    return flags


def _number(name: str, value: Any, count: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool | np.bool_) or not 0 <= number <= count:
        raise BenchError(
            f"the attack returned {_shown(value)} as the count of flag {name}, not a number from 0 to {count}"
        )
    return int(number)


def _shown(value: object) -> str:
    try:
        return one_line(
            repr(value) if isinstance(value, str | int | float) else f"an object of type {_type(value)}", 80
        )
    except ValueError:  # a number of more digits than Python writes
        return "a number too large to be written"


def _type(value: object) -> str:
    return one_line(type(value).__name__, 80)
