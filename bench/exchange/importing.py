"""Takes over somebody's results: checked, judged again where that is possible, and only then written."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.evaluation import doubts
from bench.evaluation.rejudging import Elsewhere
from bench.evaluation.verify import verify
from bench.exchange.archive import Archive
from bench.exchange.examining import examine
from bench.exchange.layout import TABLES, Rows, Tables, cell_of
from bench.models import artifacts
from bench.store import schema, writer
from bench.store.database import open_database, user_errors, writing
from bench.store.redaction import redacted_command
from bench.store.writer import ShardResult
from bench.support.files import atomic_write
from bench.support.progress import Track, untracked
from bench.vault.base import Vault

JUDGED, UNJUDGED = "judged", "unjudged"


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import did."""

    cells: int
    rows: int
    there_already: int
    unjudged: Mapping[int, str]


def import_(
    path: Path,
    db: str,
    folder: Path,
    vault: Vault,
    track: Track = untracked,
    factories: frozenset[str] = frozenset(),
) -> Imported:
    """Checks an archive, judges it again where that is possible, and only then writes its results.

    `factories` name code that may be run to build its networks.
    """
    with Archive(path) as archive, tempfile.TemporaryDirectory() as name:
        staged = Path(name)
        tables, rows = examine(archive, staged)
        stage = open_database(str(staged / "stage.db"), create=True)
        _fill(stage, tables, rows)
        found = verify(stage, staged / "images", vault, track, Elsewhere(staged / "artifacts", factories))
        stage.dispose()
        if found.problems:
            archive.refuse(
                f"{found.problems[0]}" + (f" (and {len(found.problems) - 1} more)" * (len(found.problems) > 1))
            )
        _keep_weights(staged / "artifacts")
        target = open_database(db, create=True)
        with user_errors(db):
            return _merge(target, folder, staged / "images", tables, rows, found.unjudged, track)


def _keep_weights(folder: Path) -> None:
    """Where `bench verify` finds them, and no run: what somebody calls a classifier of ours may be anything."""
    for artifact in artifacts.in_folder(folder):
        if artifacts.with_weights(artifact.weights_sha256) is None:
            for name in ("weights.npz", "artifact.json"):
                with atomic_write(artifacts.imported() / artifact.path.name / name) as stream:
                    stream.write((artifact.path / name).read_bytes())


def _fill(stage: Database, tables: Tables, rows: Sequence[Rows]) -> None:
    """The archive as a database of its own, as it was where it comes from."""
    with writing(stage) as connection:
        for table in TABLES:
            if tables[table.name]:
                connection.execute(sa.insert(table), tables[table.name])
        for cell, found in zip(tables["cell"], rows, strict=True):
            if found:
                connection.execute(sa.insert(schema.result), [{**writer.ids(cell_of(cell)), **row} for row in found])


def _merge(
    target: Database,
    folder: Path,
    staged_images: Path,
    tables: Tables,
    rows: Sequence[Rows],
    unjudged: Mapping[int, str],
    track: Track,
) -> Imported:
    """Writes what was checked: images first, then a cell's rows shard by shard, as a run of one's own would."""
    defences = {row["id"]: _place(target, schema.defence, row) for row in tables["defence"]}
    attacks = {row["id"]: _place(target, schema.attack, row) for row in tables["attack"]}
    sources = {row["id"]: _place(target, schema.source, row) for row in tables["source"]}
    boards = {
        row["id"]: _place(target, schema.board, {**row, "defence_id": defences[row["defence_id"]]})
        for row in tables["board"]
    }
    runs = {row["id"]: _run(target, row) for row in tables["run"]}
    n_examples = {row["id"]: row["n_examples"] for row in tables["board"]}
    written = there = cells = 0
    with track("taking over results", sum(map(len, rows))) as tracker:
        for cell, found in zip(tables["cell"], rows, strict=True):
            key = (boards[cell["board_id"]], attacks[cell["attack_id"]], sources[cell["source_id"]])
            mark = UNJUDGED if cell["board_id"] in unjudged else JUDGED
            values = {
                "run_id": runs[cell["run_id"]],
                "strategy": cell["strategy"],
                "inside_threat_model": cell["inside_threat_model"],
            }
            new = 0
            if writer.ensure_cell(target, key, values, imported=mark):
                new = _merge_cell(target, key, cell, tables, found, folder, staged_images, n_examples[cell["board_id"]])
            cells, written, there = cells + bool(new), written + new, there + len(found) - new
            tracker.advance(len(found))
    for board_id in boards.values():
        doubts.update(target, board_id)
    return Imported(cells, written, there, unjudged)


def _merge_cell(
    target: Database,
    key: writer.CellKey,
    cell: Mapping[str, Any],
    tables: Tables,
    rows: Rows,
    folder: Path,
    staged_images: Path,
    n_examples: int,
) -> int:
    flags, parts, written = json.loads(cell["flags_json"]), json.loads(cell["parts_json"]), 0
    for shard in tables["shard"]:
        if cell_of(shard) != cell_of(cell):
            continue
        if shard["images_file"] is not None:
            with atomic_write(folder / shard["images_file"]) as stream:
                stream.write((staged_images / shard["images_file"]).read_bytes())
        own = [row for row in rows if shard["start"] <= row["example_idx"] < shard["stop"]]
        result = ShardResult(
            shard["start"], shard["stop"], own, "imported", shard["seconds"], flags, parts, shard["images_file"],
            shard["images_sha256"],
        )  # fmt: skip
        if writer.record_shard(target, key, result, n_examples):
            written, flags = written + len(own), {}  # flags are of the whole cell: counted once
    return written


def _place(target: Database, table: sa.Table, row: Mapping[str, Any]) -> int:
    return writer.ensure(target, table, {name: value for name, value in row.items() if name != "id"}, imported=True)


def _run(target: Database, row: Mapping[str, Any]) -> int:
    kept = ("preset", "spec_json", "versions_json", "device", "git_commit")
    command = f"imported: {redacted_command(row['command'])}"
    return writer.start_run(target, {"command": command, **{name: row[name] for name in kept}})
