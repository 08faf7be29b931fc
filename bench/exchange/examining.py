"""Checks everything of somebody's results that needs no model, before any of it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from bench import norms
from bench.api import UsageError
from bench.exchange.archive import Archive
from bench.exchange.layout import TABLES, Rows, Tables, cell_of, dtype
from bench.models import artifacts
from bench.models import recipe as recipes
from bench.models.architecture import NotInstalled
from bench.store import about, row_format
from bench.store.writer import CellKey
from bench.support.files import atomic_write
from bench.support.fingerprint import fingerprint, of_file

MOST_EXAMPLES = 10**7


def examine(archive: Archive, staged: Path) -> tuple[Tables, list[Rows]]:
    """Checks everything of an archive that needs no model; its images and weights end up in a folder of their own."""
    tables = _checked(archive)
    rows = [_unpacked_rows(archive, place, cell, tables) for place, cell in enumerate(tables["cell"])]
    if len(archive.names("rows")) != len(rows):
        archive.refuse("it has rows of more cells than there are")
    _stage_images(archive, tables, staged)
    _stage_weights(archive, tables, staged / "artifacts")
    return tables, rows


def _checked(archive: Archive) -> Tables:
    """The tables of a manifest, if every value is of its column's type and every row belongs to another.

    What an older format does not have is filled in.
    """
    given = archive.manifest.get("tables")
    if not isinstance(given, dict) or set(given) != {table.name for table in TABLES}:
        archive.refuse("its manifest does not have the tables of a run")
    for table in TABLES:
        if not isinstance(given[table.name], list):
            archive.refuse(f"its table {table.name} is no list")
        for place, row in enumerate(given[table.name]):
            _check_row(archive, table, place, row)
    missing = archive.format.missing
    tables = {name: [{**missing.get(name, {}), **row} for row in rows] for name, rows in given.items()}
    _check_references(archive, tables)
    return tables


def _check_row(archive: Archive, table: sa.Table, place: int, row: Any) -> None:
    where = f"row {place} of its table {table.name}"
    columns = [column for column in table.columns if column.name not in archive.format.missing.get(table.name, {})]
    if not isinstance(row, dict) or set(row) != {column.name for column in columns}:
        archive.refuse(f"{where} does not have the table's columns")
    for column in columns:
        value = row[column.name]
        if value is None and column.nullable:
            continue
        wanted: tuple[type, ...] = (column.type.python_type,)
        if wanted == (float,):
            wanted = (float, int)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            archive.refuse(f"{where}: {column.name} is not of type {wanted[0].__name__}")
        if isinstance(value, str) and len(value) > (getattr(column.type, "length", None) or 2**20):
            archive.refuse(f"{where}: {column.name} is too long")
        if isinstance(value, int) and not -(2**62) < value < 2**62:
            archive.refuse(f"{where}: {column.name} is out of range")
        if column.name.endswith("_json"):
            parsed = archive.json(str(value).encode(), f"{column.name} of {where}")
            if not isinstance(parsed, list if column.name == "parts_json" else dict):
                archive.refuse(f"{where}: {column.name} has no such form")
            if column.name == "about_json" and (reason := about.problem(parsed)):
                archive.refuse(f"{where}: a description holds strings, numbers and lists of strings; {reason}")


def _check_references(archive: Archive, tables: Tables) -> None:
    known = {name: {row["id"] for row in tables[name]} for name in ("run", "defence", "attack", "source", "board")}
    boards = {row["id"]: row for row in tables["board"]}
    cells = {cell_of(row) for row in tables["cell"]}
    for name, ids in known.items():
        if len(ids) != len(tables[name]):
            archive.refuse(f"two rows of its table {name} have one id")
    for board in tables["board"]:
        if board["defence_id"] not in known["defence"] or not 0 < board["n_examples"] <= MOST_EXAMPLES:
            archive.refuse(f"board {board['id']} has no defence, or {board['n_examples']} examples")
        if board["norm"] not in norms.entries():
            archive.refuse(f"board {board['id']} is in norm '{board['norm']}', which is not installed here")
    if len(cells) != len(tables["cell"]) or not cells:
        archive.refuse("a cell is in it twice, or there is none")
    for cell in tables["cell"]:
        if any(cell[f"{name}_id"] not in known[name] for name in ("run", "attack", "source", "board")):
            archive.refuse("a cell belongs to a run, attack, source or board that is not in it")
    reached: dict[CellKey, int] = {}
    named = set()
    for shard in sorted(tables["shard"], key=lambda row: (cell_of(row), row["start"])):
        key = cell_of(shard)
        if key not in cells or shard["status"] != "done":
            archive.refuse("a shard belongs to no cell, or is not done")
        if not 1 <= (shard["rows_version"] or 0) <= archive.rows_version:
            archive.refuse(
                f"a shard has rows of version {shard['rows_version']}, the file those of 1 to {archive.rows_version}"
            )
        if not reached.get(key, 0) <= shard["start"] < shard["stop"] <= boards[key[0]]["n_examples"]:
            archive.refuse(f"the shards of a cell overlap, or leave its board ({shard['start']} to {shard['stop']})")
        reached[key] = shard["stop"]
        if shard["images_file"] is not None:
            named.add(f"images/{shard['images_file']}")
    if odd := named ^ set(archive.names("images")):
        archive.refuse(f"{min(odd)} is named by a shard or among the images, but not both")


def _unpacked_rows(archive: Archive, place: int, cell: Mapping[str, Any], tables: Tables) -> Rows:
    """A cell's rows of `result`, exactly those of its shards."""
    name, wanted_columns = f"rows/{place}.npz", row_format.columns(archive.rows_version)
    columns = archive.arrays(archive.read(name), name)
    if set(columns) != set(wanted_columns):
        archive.refuse(f"{name} does not have the columns of a result")
    wanted = [i for s in tables["shard"] if cell_of(s) == cell_of(cell) for i in range(s["start"], s["stop"])]
    for column, values in columns.items():
        if values.shape != (len(wanted),) or values.dtype != dtype(column):
            archive.refuse(f"{name}: {column} is {values.dtype} of shape {values.shape}, not one number per row")
        if not np.isfinite(values).all() or np.abs(values).max(initial=0) >= 2**31:
            archive.refuse(f"{name}: {column} has a value out of range")
    if sorted(columns["example_idx"].tolist()) != sorted(wanted):
        archive.refuse(f"{name} has other examples than its shards")
    lists = {column: values.tolist() for column, values in columns.items()}
    return row_format.completed([{c: lists[c][i] for c in wanted_columns} for i in range(len(wanted))])


def _stage_images(archive: Archive, tables: Tables, staged: Path) -> None:
    for shard in tables["shard"]:
        if shard["images_file"] is None:
            continue
        name = f"images/{shard['images_file']}"
        content = archive.read(name)
        found = archive.arrays(content, name)
        shape = found["images"].shape if set(found) == {"images"} else ()
        if len(shape) != 4 or shape[0] != shard["stop"] - shard["start"] or found["images"].dtype != np.float32:
            archive.refuse(f"{name} does not hold the images of its shard")
        with atomic_write(staged / name) as stream:
            stream.write(content)


def _stage_weights(archive: Archive, tables: Tables, folder: Path) -> None:
    wanted = {defence["weights_sha256"] for defence in tables["defence"]}
    for name in archive.names("weights"):
        content = archive.read(name)
        if name.endswith(".npz"):
            archive.arrays(content, name, limit=2**32)
        elif not _describes(archive.json(content, name)):
            archive.refuse(f"{name} does not describe an artifact")
        with atomic_write(folder / name.removeprefix("weights/")) as stream:
            stream.write(content)
    for artifact in artifacts.in_folder(folder):
        name, said = f"weights/{artifact.path.name}", artifact.weights_sha256
        if fingerprint(artifact.spec) != artifact.fingerprint:
            archive.refuse(f"{name} does not fit its fingerprint")
        if not artifact.weights.exists() or said != of_file(artifact.weights) or said[:16] != artifact.path.name:
            archive.refuse(f"{name} is not what its description says (sha256 differs)")
        if said not in wanted:
            archive.refuse(f"{name} is of no defence in it")
        _check_network(archive, name, artifact.spec["recipe"])


def _check_network(archive: Archive, name: str, recipe: Mapping[str, Any]) -> None:
    """Whether the network can be built as it is described, and is no larger than it may be."""
    try:
        recipes.network_of(recipe).check_limits()
    except NotInstalled:
        return  # nothing will be built, nor judged
    except UsageError as error:
        archive.refuse(f"{name}: {error}")


def _describes(content: Any) -> bool:
    """Whether it has the form of an `artifact.json`, as far as anybody relies on it."""
    if not isinstance(content, dict) or not isinstance(content.get("fingerprint"), str):
        return False
    spec, record = content.get("spec"), content.get("record")
    if not isinstance(spec, dict) or not isinstance(spec.get("recipe"), dict) or not isinstance(record, dict):
        return False
    return isinstance(record.get("weights_sha256"), str)
