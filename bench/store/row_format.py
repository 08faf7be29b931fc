"""The columns of a `result` row behind the digest of its shard: one list per version, frozen once it was released.

A new column of `schema.result` has a default, a migration that gives it to the rows that are there, and a new version
here; the shards of older versions keep the digests they have, which are of the columns there were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy.sql.schema import ScalarElementColumnDefault

from bench.api import BenchError
from bench.store import schema

_FIRST = (
    "example_idx",
    "correct",
    "pred",
    "label",
    "margin",
    "distance",
    "source_success",
    "source_margin",
    "restart",
    "target",
    "part",
    "gradients",
    "queries",
)
COLUMNS: dict[int, tuple[str, ...]] = {
    1: _FIRST,
    2: (*_FIRST, "rounded"),
}


def newest() -> int:
    """The version that is written."""
    return max(COLUMNS)


def columns(version: int) -> tuple[str, ...]:
    """The columns of a version, without the ids of the cell; raises BenchError if there is no such version."""
    if version not in COLUMNS:
        raise BenchError(
            f"rows of version {version} are not known to this bench, which knows those up to {newest()}: update it"
        )
    return COLUMNS[version]


def completed(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the defaults of the columns they do not have."""
    defaults = _defaults()
    return [{**defaults, **row} for row in rows]


def stray(rows: Iterable[Mapping[str, Any]], version: int) -> str | None:
    """A column with a value that rows of this version do not have, and that no digest of theirs would tell of."""
    later = {name: value for name, value in _defaults().items() if name not in columns(version)}
    return next((name for row in rows for name, value in later.items() if row[name] != value), None)


def _defaults() -> dict[str, Any]:
    """What columns hold of which a row says nothing."""
    found: dict[str, Any] = {c.name: None for c in schema.result.columns if c.nullable}
    return found | {
        c.name: c.default.arg for c in schema.result.columns if isinstance(c.default, ScalarElementColumnDefault)
    }


def digest(rows: Iterable[Mapping[str, Any]], version: int) -> str:
    """The sha256 of every value of the rows that the version has, in the order of the examples."""
    names = columns(version)
    values = [[row[name] for name in names] for row in sorted(rows, key=lambda row: row["example_idx"])]
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()
