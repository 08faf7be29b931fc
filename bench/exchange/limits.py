"""What is taken from somebody else's results, at most: everything is held to this before it is judged, stored or built.

What passes here must not break anything later: a page, another database, a program that reads the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import sqlalchemy as sa

from bench.data.datasets import MOST_CLASSES
from bench.store import about, coverage, schema
from bench.support.printable import is_printable, printable

MOST_BYTES = 2**36  # of all members of an archive, unpacked
MOST_MEMBERS = 10**6
MOST_CELLS = 10**5
MOST_EXAMPLES = 10**7
MOST_PER_ROW = 1000  # examples × cells that a board declares, per row that it has
UNFILLED = 10**6  # the same, that a board may declare with however few rows
MOST_CLASSES_STORED = min(MOST_CLASSES, 2**15)  # `result.pred` is a small integer
LARGEST_EPSILON = 10.0**6
LARGEST_MARGIN = 10.0**38  # pages keep margins as float32
LONGEST_SECONDS = 10.0**10
LONGEST_TEXT = 2**20
DISTANCE_TOLERANCE = 1e-3  # as `bench verify` has it
_SMALL, _INTEGER, _BIG = 2**15 - 1, 2**31 - 1, 2**62
_STATES = {"cell": ("running", "done", "failed"), "shard": ("done",)}
_IN_FINGERPRINTS = ("name", "version", "params_json", "dataset", "norm", "key_id", "preset", "strategy")
_NAMES = ("name", "version", "dataset", "norm", "strategy", "preset")
_DIGESTS = ("fingerprint", "weights_sha256", "examples_sha256", "images_sha256", "rows_sha256")


def most_of(column: sa.Column[Any]) -> int:
    """The largest whole number that a column of every kind of database holds."""
    if isinstance(column.type, sa.SmallInteger):
        return _SMALL
    return _BIG if isinstance(column.type, sa.BigInteger) else _INTEGER


def value_problem(table: str, column: sa.Column[Any], value: Any) -> str | None:
    """What is wrong with a value of a table, by itself."""
    name = column.name
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_problem(name, value, most_of(column))
    if not isinstance(value, str):
        return None
    if len(value) > (getattr(column.type, "length", None) or LONGEST_TEXT):
        return "is too long"
    if name in _IN_FINGERPRINTS and not is_printable(value):
        return "has signs that are no letters"
    if name in _NAMES and not value.strip():
        return "is empty"
    if name in _DIGESTS and not (len(value) == 64 and set(value) <= set("0123456789abcdef")):
        return "is no sha256"
    if name == "status" and value not in _STATES[table]:
        return f"is none of {', '.join(_STATES[table])}"
    if name == "scope" and value not in (schema.ALL, schema.SURVIVORS):
        return f"is neither {schema.ALL} nor {schema.SURVIVORS}"
    if name == "imported" and value not in (schema.JUDGED, schema.UNJUDGED):
        return f"is neither {schema.JUDGED} nor {schema.UNJUDGED}"
    if name == "dataset" and ("/" in value or "\\" in value or value.endswith(".npz")):
        return "is a path, not the name of a dataset"
    return None


def _number_problem(name: str, value: float, most: int) -> str | None:
    if isinstance(value, int) and not 0 <= value <= most:
        return "is out of range"
    if not math.isfinite(value):
        return "is no finite number"
    if name == "epsilon" and not 0 < value <= LARGEST_EPSILON:
        return f"is {value:g}; an epsilon is above 0, and {LARGEST_EPSILON:g} at most"
    if name == "seconds" and not 0 <= value <= LONGEST_SECONDS:
        return f"is {value:g}; it must be 0 to {LONGEST_SECONDS:g}"
    return None


def json_problem(name: str, value: Any) -> str | None:
    """What is wrong with the content of a JSON column."""
    form: Any = list if name in ("parts_json", "examples_json") else dict
    if not isinstance(value, form):
        return "has no such form"
    if name == "about_json" and (reason := about.problem(value)):
        return f"is none: a description holds strings, numbers and lists of strings; {reason}"
    if name == "required_json" and (reason := coverage.problem(value)):
        return reason
    if name == "order_json" and not _is_order(value):
        return "is no order of cells by defence and norm"
    if name in ("params_json", "parts_json") and not all(map(is_printable, _texts(value))):
        return "has signs that are no letters"
    if name == "parts_json" and not (len(value) < _SMALL and all(isinstance(part, str) for part in value)):
        return "is no list of names"
    if name in ("flags_json", "examined_json") and not all(_is_count(count) for count in value.values()):
        return "is no table of counts"
    if name == "doubts_json" and not all(isinstance(words, str) for words in value.values()):
        return "is no table of words"
    return None


def _is_order(value: dict[str, Any]) -> bool:
    """Whether it has lists of names by norm by defence."""
    return all(
        isinstance(by_norm, dict)
        and all(isinstance(names, list) and all(isinstance(one, str) for one in names) for names in by_norm.values())
        for by_norm in value.values()
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _INTEGER


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def cleaned(value: Any) -> Any:
    """A JSON value, or a text, with every sign written out that is no letter: what is for people, and in no fingerprint."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(name): cleaned(one) for name, one in value.items()}
    return [cleaned(one) for one in value] if isinstance(value, list) else value


def board_problem(board: Mapping[str, Any], cells: int, rows: int) -> str | None:
    """What is wrong with the sizes that a board declares."""
    declared = board["n_examples"] * cells
    if not 0 < board["n_examples"] <= MOST_EXAMPLES:
        return f"has {board['n_examples']} examples"
    if declared > max(UNFILLED, MOST_PER_ROW * rows):
        return f"declares {board['n_examples']} examples in {cells} cells, and has {rows} rows"
    return None


def rows_problem(
    columns: Mapping[str, np.ndarray], epsilon: float, classes: int | None, parts: int
) -> tuple[str, str] | None:
    """A column of a cell's rows with a value that cannot be, and why."""
    most = classes or MOST_CLASSES_STORED
    ranges: dict[str, tuple[float, float]] = {
        "correct": (0, 1),
        "rounded": (-1, 1),  # -1: not judged so
        "source_success": (0, 1),
        "pred": (0, most - 1),
        "label": (0, most - 1),
        "target": (-_SMALL, _SMALL),
        "restart": (-_SMALL, _SMALL),
        "part": (-1, parts - 1),
        "distance": (0, epsilon + DISTANCE_TOLERANCE),
        "margin": (-LARGEST_MARGIN, LARGEST_MARGIN),
        "source_margin": (-LARGEST_MARGIN, LARGEST_MARGIN),
    }
    for name, values in columns.items():
        low, high = ranges.get(name, (0, _INTEGER))
        if not np.isfinite(values).all() or not ((values >= low) & (values <= high)).all():
            return name, f"has a value that is not in {low:g} to {high:g}"
    if not np.array_equal(columns["correct"] == 1, columns["pred"] == columns["label"]):
        return "correct", "says other than its answers and labels"
    return None
