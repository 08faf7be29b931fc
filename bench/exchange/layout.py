"""Which tables the file of a run's results holds, and of what types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from bench.store import schema
from bench.store.writer import CellKey

TABLES = (schema.run, schema.defence, schema.attack, schema.source, schema.board, schema.cell, schema.shard)
FLOATS = {c.name for c in schema.result.columns if isinstance(c.type, sa.Float)}

Tables = dict[str, list[dict[str, Any]]]
Rows = list[dict[str, Any]]
"""The rows of `result` of one cell, without its ids."""


def cell_of(row: Mapping[str, Any]) -> CellKey:
    """The cell that a row of `cell` or `shard` belongs to."""
    return (row["board_id"], row["attack_id"], row["source_id"])
