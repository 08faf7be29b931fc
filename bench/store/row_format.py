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

COLUMNS: dict[int, tuple[str, ...]] = {
    1: (
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
    ),
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
    defaults = {
        c.name: c.default.arg for c in schema.result.columns if isinstance(c.default, ScalarElementColumnDefault)
    }
    return [{**defaults, **row} for row in rows]


def digest(rows: Iterable[Mapping[str, Any]], version: int) -> str:
    """The sha256 of every value of the rows that the version has, in the order of the examples."""
    names = columns(version)
    values = [[row[name] for name in names] for row in sorted(rows, key=lambda row: row["example_idx"])]
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()
