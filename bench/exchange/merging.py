"""Writes results that were checked and judged: all rows of an import in one transaction, its files with it, or nothing."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.evaluation import doubts, images
from bench.exchange.archive import RefusedArchive
from bench.exchange.layout import Rows, Tables, cell_of, shards_by_cell
from bench.exchange.placing import Placed
from bench.store import completeness, coverage, identity, imports, schema, shards, writer
from bench.store.database import retry_transient, writing
from bench.store.redaction import redacted_command
from bench.store.writer import CellKey, ShardResult
from bench.support.fingerprint import of_file

Row = Mapping[str, Any]
SAME = ("name", "version", "keyed", "key_id", "weights_sha256", "norm", "epsilon", "examples_sha256", "n_examples")
"""What two rows of one fingerprint have in common, also where the fingerprint does not have it."""


@dataclasses.dataclass(frozen=True)
class Arrival:
    """An archive that was found in order, and what is known of it."""

    name: str
    sha256: str
    tables: Tables
    rows: Sequence[Rows]
    images: Path
    """The folder with its files of images, by the names it gave them."""
    judged: frozenset[CellKey]
    """The cells of which every image was judged here; others count for nothing."""

    @functools.cached_property
    def by_id(self) -> dict[str, dict[int, Row]]:
        """The rows of every table that has ids, by them."""
        return {name: {row["id"]: row for row in self.tables[name]} for name in imports.KINDS}

    @functools.cached_property
    def image_files(self) -> dict[CellKey, dict[tuple[int, int], tuple[str, str, Path]]]:
        """By cell and examples: what the file of images is called here, by cell and content, its sha256, and where it is."""
        boards, attacks, sources = (self.by_id[name] for name in ("board", "attack", "source"))
        found: dict[CellKey, dict[tuple[int, int], tuple[str, str, Path]]] = {}
        for shard in self.tables["shard"]:
            if shard["images_file"] is None:
                continue
            board, attack, source = key = cell_of(shard)
            path = self.images / shard["images_file"]
            digest, span = of_file(path), (shard["start"], shard["stop"])
            name = images.name_of(identity.cell(boards[board], attacks[attack], sources[source]), *span, digest)
            found.setdefault(key, {})[span] = (name, digest, path)
        return found


@dataclasses.dataclass(frozen=True)
class Taken:
    """What was taken over."""

    cells: int
    rows: int
    replaced: frozenset[str]
    """Files of images of cells that gave way, and that no shard has any more."""


@retry_transient
def merge(target: Database, arrival: Arrival, placed: Placed) -> Taken:
    """Takes over the cells that may be."""
    with writing(target) as connection:
        merging = _Merging(connection, arrival)
        for cell, rows in zip(arrival.tables["cell"], arrival.rows, strict=True):
            merging.take(cell, rows)
        for board_id in sorted(merging.boards):
            completeness.settle(connection, board_id)
            doubts.put(connection, board_id)
        placed.link(merging.files)
        replaced = merging.replaced - imports.used_images(connection, merging.replaced)
        return Taken(merging.cells, merging.written, frozenset(replaced))


class _Merging:
    """One import inside its transaction."""

    def __init__(self, connection: Connection, arrival: Arrival) -> None:
        self._connection, self._offer = connection, arrival
        self._shards, self._images = shards_by_cell(arrival.tables), arrival.image_files
        self._ids: dict[tuple[str, int], int] = {}
        self._import_id: int | None = None
        self.files: dict[str, str] = {}
        self.boards: set[int] = set()
        self.replaced: set[str] = set()
        self.cells = self.written = 0

    def take(self, cell: Row, rows: Rows) -> None:
        """Writes a cell with all its rows, if what is here of it gives way."""
        key, judged = cell_of(cell), cell_of(cell) in self._offer.judged
        board = self._offer.by_id["board"][key[0]]
        if not self._gives_way(key, judged, complete=_is_complete(cell, rows, board)):
            return
        if self._import_id is None:
            self._import_id = imports.begin(self._connection, self._offer.name, self._offer.sha256)
        here = (self._place("board", key[0]), self._place("attack", key[1]), self._place("source", key[2]))
        values = {
            "run_id": self._run(cell["run_id"]),
            "strategy": cell["strategy"],
            "inside_threat_model": cell["inside_threat_model"],
            "scope": cell["scope"],
        }
        self.replaced |= imports.images_of(self._connection, here)
        writer.put_imported_cell(self._connection, here, values, schema.JUDGED if judged else schema.UNJUDGED)
        imports.made_cell(self._connection, self._import_id, here)
        self._write_shards(key, here, cell, rows, board["n_examples"])
        self.boards.add(here[0])
        self.cells, self.written = self.cells + 1, self.written + len(rows)

    def _gives_way(self, key: CellKey, judged: bool, complete: bool) -> bool:
        """Whether there is nothing of a cell here that is worth as much: never one's own rows, nor judged ones."""
        found = self._here(key)
        if found is None:
            return True
        if found["imported"] is None:
            return judged and complete and found["n_done"] == 0 and not self._claimed(found)
        if found["imported"] == schema.JUDGED:
            return judged and complete and found["status"] != "done"
        return judged

    def _here(self, key: CellKey) -> Row | None:
        """The cell with these fingerprints, as it is in the database."""
        query = sa.select(schema.cell)
        for table, row_id in zip((schema.board, schema.attack, schema.source), key, strict=True):
            query = query.join(table, schema.cell.c[f"{table.name}_id"] == table.c.id).where(
                table.c.fingerprint == self._offer.by_id[table.name][row_id]["fingerprint"]
            )
        found = self._connection.execute(query).mappings().first()
        return None if found is None else dict(found)

    def _claimed(self, found: Row) -> bool:
        """Whether a run has a shard of the cell in hand."""
        here = writer.of_cell(schema.shard, cell_of(found))
        query = sa.select(schema.shard.c.start).where(here, schema.shard.c.status == "claimed")
        return self._connection.execute(query).first() is not None

    def _place(self, kind: str, row_id: int) -> int:
        """The id here of a row of the archive, which is made if there is none of its fingerprint."""
        if (kind, row_id) not in self._ids:
            row = {name: value for name, value in self._offer.by_id[kind][row_id].items() if name != "id"}
            if kind == "board":
                row["defence_id"] = self._place("defence", row["defence_id"])
                row["required_json"] = coverage.as_imported(row["required_json"])
            table = imports.KINDS[kind]
            there = self._connection.execute(sa.select(table.c.id).where(table.c.fingerprint == row["fingerprint"]))
            new = there.first() is None
            found = writer.put(self._connection, table, row)
            for name in SAME:
                if name in row and row[name] != found[name]:
                    raise RefusedArchive(
                        f"{self._offer.name} is refused: it has {kind} {row['fingerprint'][:12]}… with {name} "
                        f"{row[name]!r}, which is {found[name]!r} here"
                    )
            self._ids[kind, row_id] = int(found["id"])
            self._note(kind, self._ids[kind, row_id], new)
        return self._ids[kind, row_id]

    def _run(self, row_id: int) -> int:
        if ("run", row_id) not in self._ids:
            row = self._offer.by_id["run"][row_id]
            kept = ("preset", "spec_json", "versions_json", "device", "git_commit", "order_json")
            command = f"imported: {redacted_command(row['command'])}"
            values = {"command": command, **{name: row[name] for name in kept}}
            self._ids["run", row_id] = writer.put_run(self._connection, values)
            self._note("run", self._ids["run", row_id], True)
        return self._ids["run", row_id]

    def _note(self, kind: str, row_id: int, new: bool) -> None:
        assert self._import_id is not None
        if new:
            imports.made_row(self._connection, self._import_id, kind, row_id)

    def _write_shards(self, key: CellKey, here: CellKey, cell: Row, rows: Rows, n_examples: int) -> None:
        flags, examined = json.loads(cell["flags_json"]), json.loads(cell["examined_json"])
        parts = json.loads(cell["parts_json"])
        by_example = {row["example_idx"]: row for row in rows}
        for shard in self._shards.get(key, []):
            span = (shard["start"], shard["stop"])
            name, digest, _ = self._images.get(key, {}).get(span, (None, None, None))
            own = [by_example[example] for example in shards.examples_of(shard)]
            result = ShardResult(own, "imported", shard["seconds"], flags, parts, name, digest, examined)
            writer.put_shard(self._connection, here, result, n_examples)
            flags, examined = {}, {}  # they are of the whole cell: counted once
            if name is not None and digest is not None:
                self.files[name] = digest


def _is_complete(cell: Row, rows: Rows, board: Row) -> bool:
    """Whether a cell of an archive has all it needs; of survivors its word was checked (`record_checks`)."""
    on_survivors = bool(cell["scope"] == schema.SURVIVORS and cell["status"] == "done")
    return on_survivors or len(rows) == int(board["n_examples"])
