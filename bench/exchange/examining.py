"""Checks everything of somebody's results that needs no model, before any of it is believed."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from bench import norms, registry
from bench.api import BenchError, Shape, UsageError
from bench.data import datasets
from bench.exchange import limits
from bench.exchange.archive import Archive
from bench.exchange.layout import TABLES, Rows, Tables, cell_of, dtype, shards_by_cell, unpacked
from bench.models import artifacts, network_size
from bench.models import recipe as recipes
from bench.models.architecture import NotInstalled
from bench.store import identity, row_format, shards
from bench.store.schema import CLEAN, SURVIVORS
from bench.store.writer import CellKey
from bench.support.files import atomic_write
from bench.support.fingerprint import fingerprint, of_file


def examine(archive: Archive, staged: Path) -> tuple[Tables, list[Rows]]:
    """Checks everything of an archive that needs no model; its images and weights end up in a folder of their own."""
    tables = _checked(archive)
    by_cell, known = shards_by_cell(tables), {board["id"]: _dataset(board) for board in tables["board"]}
    rows = [
        _unpacked_rows(archive, f"rows/{place}.npz", _Cell(cell, tables, by_cell.get(cell_of(cell), [])), known)
        for place, cell in enumerate(tables["cell"])
    ]
    if len(archive.names("rows")) != len(rows):
        archive.refuse("it has rows of more cells than there are")
    _check_boards(archive, tables, rows)
    _stage_images(archive, tables, staged)
    _stage_weights(archive, tables, staged / "artifacts", known)
    return tables, rows


@dataclasses.dataclass(frozen=True)
class _Cell:
    """A cell of an archive with what belongs to it."""

    row: Mapping[str, Any]
    tables: Tables
    shards: Sequence[Mapping[str, Any]]

    @property
    def board(self) -> Mapping[str, Any]:
        return next(board for board in self.tables["board"] if board["id"] == self.row["board_id"])


def _dataset(board: Mapping[str, Any]) -> datasets.Dataset | None:
    """The dataset of a board, if it is here."""
    try:
        return datasets.load(board["dataset"])
    except BenchError:
        return None


def _checked(archive: Archive) -> Tables:
    """The tables of a manifest, if every value is of its column's type and every row belongs to another.

    What an older format does not have is filled in, and what is for people is made printable.
    """
    given = archive.manifest.get("tables")
    if not isinstance(given, dict) or set(given) != {table.name for table in TABLES}:
        archive.refuse("its manifest does not have the tables of a run")
    tables: Tables = {}
    for table in TABLES:
        rows = given[table.name]
        if not isinstance(rows, list):
            archive.refuse(f"its table {table.name} is no list")
        missing = archive.format.missing.get(table.name, {})
        tables[table.name] = [{**missing, **_row(archive, table, i, row, missing)} for i, row in enumerate(rows)]
    _check_references(archive, tables)
    _check_clean(archive, tables)
    return tables


def _row(archive: Archive, table: sa.Table, place: int, row: Any, missing: Mapping[str, Any]) -> dict[str, Any]:
    where = f"row {place} of its table {table.name}"
    columns = [column for column in table.columns if column.name not in missing]
    if not isinstance(row, dict) or set(row) != {column.name for column in columns}:
        archive.refuse(f"{where} does not have the table's columns")
    return {column.name: _value(archive, table, where, column, row[column.name]) for column in columns}


def _value(archive: Archive, table: sa.Table, where: str, column: sa.Column[Any], value: Any) -> Any:
    name = column.name
    if value is None and column.nullable:
        return None
    wanted: tuple[type, ...] = (column.type.python_type,)
    if wanted == (float,):
        wanted = (float, int)
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        archive.refuse(f"{where}: {name} is not of type {wanted[0].__name__}")
    if reason := limits.value_problem(table.name, column, value):
        archive.refuse(f"{where}: {name} {reason}")
    if name.endswith("_json"):
        parsed = archive.json(str(value).encode(errors="surrogatepass"), f"{name} of {where}")
        if reason := limits.json_problem(name, parsed):
            archive.refuse(f"{where}: {name} {reason}")
        return value if name == "params_json" else json.dumps(limits.cleaned(parsed))
    return limits.cleaned(value)


def _check_references(archive: Archive, tables: Tables) -> None:
    known = {name: {row["id"] for row in tables[name]} for name in ("run", "defence", "attack", "source", "board")}
    cells = {cell_of(row) for row in tables["cell"]}
    for name, ids in known.items():
        if len(ids) != len(tables[name]):
            archive.refuse(f"two rows of its table {name} have one id")
        fingerprints = {row.get("fingerprint", row["id"]) for row in tables[name]}
        if len(fingerprints) != len(ids):
            archive.refuse(f"two rows of its table {name} have one fingerprint")
    for board in tables["board"]:
        if board["defence_id"] not in known["defence"] or not 0 < board["n_examples"] <= limits.MOST_EXAMPLES:
            archive.refuse(f"board {board['id']} has no defence, or {board['n_examples']} examples")
        if board["norm"] not in norms.entries():
            archive.refuse(f"board {board['id']} is in norm '{board['norm']}', which is not installed here")
    if len(cells) != len(tables["cell"]) or not 0 < len(cells) <= limits.MOST_CELLS:
        archive.refuse("a cell is in it twice, or there is none, or there are too many")
    for cell in tables["cell"]:
        if any(cell[f"{name}_id"] not in known[name] for name in ("run", "attack", "source", "board")):
            archive.refuse("a cell belongs to a run, attack, source or board that is not in it")
    _check_shards(archive, tables, cells)


def _check_shards(archive: Archive, tables: Tables, cells: Set[CellKey]) -> None:
    boards = {row["id"]: row for row in tables["board"]}
    examples: dict[CellKey, set[int]] = {}
    named: collections.Counter[str] = collections.Counter()
    for shard in sorted(tables["shard"], key=lambda row: (cell_of(row), row["start"])):
        key = cell_of(shard)
        if key not in cells or shard["status"] != "done":
            archive.refuse("a shard belongs to no cell, or is not done")
        if not 1 <= (shard["rows_version"] or 0) <= archive.rows_version:
            archive.refuse(
                f"a shard has rows of version {shard['rows_version']}, the file those of 1 to {archive.rows_version}"
            )
        if not 0 <= shard["start"] < shard["stop"] <= boards[key[0]]["n_examples"]:
            archive.refuse(f"a shard leaves its board ({shard['start']} to {shard['stop']})")
        if reason := shards.problem(shard):
            archive.refuse(f"a shard {reason} ({shard['start']} to {shard['stop']})")
        own = examples.setdefault(key, set())
        if not own.isdisjoint(shards.examples_of(shard)):
            archive.refuse(f"the shards of a cell overlap ({shard['start']} to {shard['stop']})")
        own.update(shards.examples_of(shard))
        if shard["images_file"] is not None:
            named[f"images/{shard['images_file']}"] += 1
    without = {cell_of(row) for row in tables["cell"] if row["scope"] == SURVIVORS and row["status"] == "done"}
    if cells - examples.keys() - without:
        archive.refuse("a cell has no finished shard")
    if odd := named.keys() ^ set(archive.names("images")):
        archive.refuse(f"{min(odd)} is named by a shard or among the images, but not both")
    if twice := [name for name, count in named.items() if count > 1]:
        archive.refuse(f"{twice[0]} is named by two shards")


def _check_clean(archive: Archive, tables: Tables) -> None:
    """The unperturbed images are one attack on one source, which are what every run calls so, and have no images."""
    for kind in ("attack", "source"):
        for row in tables[kind]:
            if row["name"] == CLEAN and any(row[name] != value for name, value in identity.clean_row().items()):
                archive.refuse(f"its {kind} {row['id']} is called '{CLEAN}', and is something else")
    clean = {kind: {row["id"] for row in tables[kind] if row["name"] == CLEAN} for kind in ("attack", "source")}
    for cell in tables["cell"]:
        sides = {cell["attack_id"] in clean["attack"], cell["source_id"] in clean["source"], cell["strategy"] == CLEAN}
        if len(sides) != 1 or (sides == {True} and not cell["inside_threat_model"]):
            archive.refuse("a cell of it is that of the unperturbed images in part only")
    for row in tables["defence"]:
        if row["keyed"] != (row["key_id"] is not None):
            archive.refuse(f"its defence {row['id']} has a key without a name, or the name of a key and none")


def _check_boards(archive: Archive, tables: Tables, rows: Sequence[Rows]) -> None:
    """What boards declare against the rows they have; and an example has one label, whoever attacks it."""
    counted: collections.Counter[int] = collections.Counter()
    cells: collections.Counter[int] = collections.Counter()
    labels: dict[int, dict[int, int]] = {}
    for cell, own in zip(tables["cell"], rows, strict=True):
        board = cell["board_id"]
        counted[board] += len(own)
        cells[board] += 1
        said = labels.setdefault(board, {})
        for row in own:
            if said.setdefault(row["example_idx"], row["label"]) != row["label"]:
                archive.refuse(f"example {row['example_idx']} of board {board} has two labels")
    for board in tables["board"]:
        if reason := limits.board_problem(board, cells[board["id"]], counted[board["id"]]):
            archive.refuse(f"board {board['id']} {reason}")


def _unpacked_rows(archive: Archive, name: str, cell: _Cell, known: Mapping[int, datasets.Dataset | None]) -> Rows:
    """A cell's rows of `result`, exactly those of its shards."""
    wanted_columns = row_format.columns(archive.rows_version)
    columns = archive.arrays(archive.read(name), name)
    if set(columns) != set(wanted_columns):
        archive.refuse(f"{name} does not have the columns of a result")
    wanted = sorted(example for shard in cell.shards for example in shards.examples_of(shard))
    count = len(wanted)
    for column, values in columns.items():
        if values.shape != (count,) or values.dtype != dtype(column):
            archive.refuse(f"{name}: {column} is {values.dtype} of shape {values.shape}, not one number per row")
    dataset, parts = known[cell.row["board_id"]], len(json.loads(cell.row["parts_json"]))
    classes = len(dataset.classes) if dataset else None
    if found := limits.rows_problem(columns, cell.board["epsilon"], classes, parts):
        archive.refuse(f"{name}: {found[0]} {found[1]}")
    if sorted(columns["example_idx"].tolist()) != wanted:
        archive.refuse(f"{name} has other examples than its shards")
    lists = {column: unpacked(column, values) for column, values in columns.items()}
    return row_format.completed([{c: lists[c][i] for c in wanted_columns} for i in range(count)])


def _stage_images(archive: Archive, tables: Tables, staged: Path) -> None:
    for shard in tables["shard"]:
        if shard["images_file"] is None:
            continue
        name = f"images/{shard['images_file']}"
        content = archive.read(name)
        found = archive.arrays(content, name)
        shape = found["images"].shape if set(found) == {"images"} else ()
        if len(shape) != 4 or shape[0] != len(shards.examples_of(shard)) or found["images"].dtype != np.float32:
            archive.refuse(f"{name} does not hold the images of its shard")
        with atomic_write(staged / name) as stream:
            stream.write(content)


def _stage_weights(
    archive: Archive, tables: Tables, folder: Path, known: Mapping[int, datasets.Dataset | None]
) -> None:
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
        _check_network(archive, name, artifact, _shapes(tables, said, known))


def _shapes(tables: Tables, weights: str, known: Mapping[int, datasets.Dataset | None]) -> set[tuple[Shape, int]]:
    """What the networks with these weights read and how many classes they tell apart, as far as that is known here."""
    found: set[tuple[Shape, int]] = set()
    defences = {row["id"]: row for row in tables["defence"] if row["weights_sha256"] == weights}
    for board in tables["board"]:
        defence, dataset = defences.get(board["defence_id"]), known[board["id"]]
        if defence is not None and dataset is not None:
            with contextlib.suppress(BenchError):  # a defence that is not installed: nothing will be built
                plugin = registry.defence(defence["name"], json.loads(defence["params_json"]))
                found.add((plugin.output_shape(dataset.shape), len(dataset.classes)))
    return found


def _check_network(archive: Archive, name: str, artifact: artifacts.Artifact, shapes: Set[tuple[Shape, int]]) -> None:
    """Whether the network can be built as it is described, and is no larger than it may be."""
    try:
        network = recipes.network_of(artifact.spec["recipe"])
        network.check_limits()
        if network.code() is None:
            for shape, classes in shapes:
                network_size.check(network, shape, classes, artifact.weights)
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
