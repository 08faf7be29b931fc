"""A board as it is stored, for a verification: its cells, their rows and shards, and what was found wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import schema, writer

Row = Any  # a mapping from columns to values


@dataclasses.dataclass
class Findings:
    """What a verification saw."""

    rows: int = 0
    without_images: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    unjudged: dict[int, str] = dataclasses.field(default_factory=dict)
    """Boards that could not be judged here, and why."""
    judged: set[writer.CellKey] = dataclasses.field(default_factory=set)
    """Cells of which every row was judged from its image."""
    unjudged_cells: dict[writer.CellKey, str] = dataclasses.field(default_factory=dict)
    """Cells of boards that could be judged, of which some rows have no image to judge, in words."""


@dataclasses.dataclass(frozen=True)
class StoredBoard:
    """A board's row, and the way to everything that is stored about it."""

    database: Database
    tables: Mapping[str, Mapping[int, Row]]
    """The rows of `run`, `defence`, `attack` and `source` by their ids."""
    row: Row
    findings: Findings

    @property
    def defence(self) -> Row:
        return self.tables["defence"][self.row["defence_id"]]

    @property
    def name(self) -> str:
        return f"board {self.row['id']} ({self.defence['name']}, {self.row['norm']})"

    def attack(self, cell: Row) -> Row:
        return self.tables["attack"][cell["attack_id"]]

    def source(self, cell: Row) -> Row:
        return self.tables["source"][cell["source_id"]]

    def problem(self, cell: Row, text: str) -> None:
        """Notes what is wrong with a cell."""
        self.findings.problems.append(f"{self._named(cell)}: {text}")

    def judged(self, cell: Row, rows: int, without_images: int) -> None:
        """Notes that a cell was gone through, and how many of its rows had no image."""
        if without_images:
            self.findings.without_images += without_images
            self.findings.unjudged_cells[_key(cell)] = (
                f"{self._named(cell)}: {without_images} of {rows} rows could not be judged, as their images were not "
                "kept (--discard-adversarial) or did not come along"
            )
        elif rows or cell["scope"] == schema.SURVIVORS:  # of which there may be none, for nothing was left
            self.findings.judged.add(_key(cell))

    def _named(self, cell: Row) -> str:
        return f"{self.name}, {self.attack(cell)['name']}@{self.source(cell)['name']}"

    def cells(self, connection: Connection) -> list[Row]:
        query = sa.select(schema.cell).where(schema.cell.c.board_id == self.row["id"])
        return list(connection.execute(query.order_by(*schema.cell.primary_key)).mappings())

    def rows(self, connection: Connection, cell: Row) -> dict[int, Row]:
        """A cell's results by example."""
        query = sa.select(schema.result).where(writer.of_cell(schema.result, _key(cell)))
        return {row["example_idx"]: row for row in connection.execute(query).mappings()}

    def shards(self, connection: Connection, cell: Row) -> list[Row]:
        """A cell's finished shards, in order."""
        query = sa.select(schema.shard).where(writer.of_cell(schema.shard, _key(cell)), schema.shard.c.status == "done")
        return list(connection.execute(query.order_by(schema.shard.c.start)).mappings())


def _key(cell: Row) -> writer.CellKey:
    return (cell["board_id"], cell["attack_id"], cell["source_id"])
