"""What the file of a run's results holds: its tables, the types of its rows, and what each format has of them.

A new column of a table, once released, makes a new format: the formats before get it in `missing`, with the value that
their rows have. A new column of `result` needs none: rows go by the version of `bench.store.row_format`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from bench.store import schema
from bench.store.writer import CellKey

TABLES = (schema.run, schema.defence, schema.attack, schema.source, schema.board, schema.cell, schema.shard)

Tables = dict[str, list[dict[str, Any]]]
Rows = list[dict[str, Any]]
"""The rows of `result` of one cell, without its ids."""


@dataclasses.dataclass(frozen=True)
class Format:
    """One way of writing the file."""

    missing: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """By table: the columns that came later, and what they hold for rows of this format."""
    rows_version: int | None = None
    """The version of all its rows; None where the manifest says it."""


_BEFORE_SCOPES: Mapping[str, Mapping[str, Any]] = {
    "run": {"order_json": None},
    "cell": {"scope": schema.ALL},
    "shard": {"examples_json": None},
}
_BEFORE_CHECKS: Mapping[str, Mapping[str, Any]] = {
    **_BEFORE_SCOPES,
    "cell": {**_BEFORE_SCOPES["cell"], "examined_json": "{}"},
    "board": {"required_json": None},
}
FORMATS = {
    "bench-results-1": Format(
        {
            **_BEFORE_CHECKS,
            "attack": {"about_json": None},
            "source": {"about_json": None},
            "shard": {**_BEFORE_SCOPES["shard"], "rows_version": 1},
        },
        rows_version=1,
    ),
    "bench-results-2": Format(_BEFORE_CHECKS),
    "bench-results-3": Format(_BEFORE_SCOPES),
    "bench-results-4": Format(),
}
WRITTEN = "bench-results-4"
UNKNOWN = -1
"""What stands for nothing in a column of `result` that may hold nothing: `rounded` of an image not judged so."""


def dtype(column: str) -> type[np.float64] | type[np.int64]:
    """How a column of `result` is written."""
    return np.float64 if isinstance(schema.result.c[column].type, sa.Float) else np.int64


def packed(column: str, values: Sequence[Any]) -> np.ndarray:
    """A column of `result` as it is written; nothing, where a column may hold that, as UNKNOWN."""
    return np.array([UNKNOWN if value is None else value for value in values], dtype(column))


def unpacked(column: str, values: np.ndarray) -> list[Any]:
    """The same again."""
    found: list[Any] = values.tolist()
    return [None if value == UNKNOWN else value for value in found] if schema.result.c[column].nullable else found


def cell_of(row: Mapping[str, Any]) -> CellKey:
    """The cell that a row of `cell` or `shard` belongs to."""
    return (row["board_id"], row["attack_id"], row["source_id"])


def shards_by_cell(tables: Tables) -> dict[CellKey, list[dict[str, Any]]]:
    """The shards of every cell, in the order of their examples."""
    found: dict[CellKey, list[dict[str, Any]]] = {}
    for shard in sorted(tables["shard"], key=lambda row: (cell_of(row), row["start"])):
        found.setdefault(cell_of(shard), []).append(shard)
    return found
