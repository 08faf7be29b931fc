"""Packs everything that is finished in a database into one file."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

import bench
from bench.api import BenchError, UsageError
from bench.exchange.archive import MANIFEST
from bench.exchange.layout import TABLES, WRITTEN, Tables, cell_of, packed
from bench.models import artifacts
from bench.store import row_format, schema, writer
from bench.support.files import atomic_write
from bench.support.progress import Track, untracked


def export(
    database: Database, folder: Path, target: Path, with_weights: bool, track: Track = untracked
) -> tuple[int, int]:
    """Packs everything that is finished; returns the numbers of cells and rows."""
    with database.connect() as connection:
        tables: Tables = {
            t.name: [dict(r) for r in connection.execute(sa.select(t).order_by(*t.primary_key)).mappings()]
            for t in TABLES
        }
        tables["shard"] = [_portable(row) for row in tables["shard"] if row["status"] == "done"]
        kept = {cell_of(row) for row in tables["shard"]}
        tables["cell"] = [row for row in tables["cell"] if cell_of(row) in kept or _without_rows(row)]
        _drop_unused(tables)
        if not tables["cell"]:
            raise UsageError("nothing is finished in this database: there is nothing to export")
        rows = {}
        with track("packing rows", sum(cell["n_done"] for cell in tables["cell"])) as tracker:
            for place, cell in enumerate(tables["cell"]):
                rows[f"rows/{place}.npz"] = _packed_rows(connection, cell_of(cell))
                tracker.advance(cell["n_done"])
    files = {
        f"images/{row['images_file']}": folder / row["images_file"] for row in tables["shard"] if row["images_file"]
    }
    if with_weights:
        files |= _weights(tables["defence"])
    _write(target, tables, rows, files, track)
    return len(tables["cell"]), sum(cell["n_done"] for cell in tables["cell"])


def _without_rows(cell: Mapping[str, Any]) -> bool:
    """Whether a cell is complete because nothing was left for it."""
    return bool(cell["scope"] == schema.SURVIVORS and cell["status"] == "done")


def _portable(shard: Mapping[str, Any]) -> dict[str, Any]:
    return {**shard, "owner": None, "expires": None}


def _drop_unused(tables: Tables) -> None:
    """Leaves out what no cell that is exported refers to."""
    for name in ("board", "attack", "source", "run"):
        used = {cell[f"{name}_id"] for cell in tables["cell"]}
        tables[name] = [row for row in tables[name] if row["id"] in used]
    defences = {board["defence_id"] for board in tables["board"]}
    tables["defence"] = [row for row in tables["defence"] if row["id"] in defences]


def _packed_rows(connection: sa.Connection, key: writer.CellKey) -> bytes:
    query = sa.select(schema.result).where(writer.of_cell(schema.result, key)).order_by(schema.result.c.example_idx)
    found = connection.execute(query).mappings().all()
    file = io.BytesIO()
    names = row_format.columns(row_format.newest())
    columns = {name: packed(name, [row[name] for row in found]) for name in names}
    np.savez_compressed(file, **columns)  # type: ignore[arg-type]
    return file.getvalue()


def _weights(defences: Sequence[Mapping[str, Any]]) -> dict[str, Path]:
    files = {}
    for defence in defences:
        artifact = artifacts.with_weights(defence["weights_sha256"])
        if artifact is None:
            raise BenchError(
                f"the weights of {defence['name']} ({defence['weights_sha256'][:12]}…) are not here any more"
            )
        for file in ("weights.npz", "artifact.json"):
            files[f"weights/{artifact.weights_sha256[:16]}/{file}"] = artifact.path / file
    return files


def _write(target: Path, tables: Tables, rows: Mapping[str, bytes], files: Mapping[str, Path], track: Track) -> None:
    digests = {}
    with (
        track(f"writing {target}", len(files)) as tracker,
        atomic_write(target) as stream,
        zipfile.ZipFile(stream, "w") as packed,
    ):
        for name, content in rows.items():
            digests[name] = hashlib.sha256(content).hexdigest()
            packed.writestr(name, content)
        for name, path in files.items():
            try:
                content = path.read_bytes()
            except OSError as error:
                reason = f"{error.strerror}; 'bench verify' names all that is missing"
                raise BenchError(f"cannot export {path}: {reason}") from error
            digests[name] = hashlib.sha256(content).hexdigest()
            packed.writestr(name, content)
            tracker.advance(1)
        manifest = {
            "format": WRITTEN,
            "rows_version": row_format.newest(),
            "bench": bench.__version__,
            "tables": tables,
            "files": digests,
        }
        packed.writestr(MANIFEST, json.dumps(manifest, allow_nan=False), zipfile.ZIP_DEFLATED)
