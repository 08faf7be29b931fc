"""A run's results as one file, for somebody else's leaderboard: packed here, checked and judged again there.

The file is a zip of a JSON manifest (the rows of every table but `result`), the rows of `result` and the images as
arrays, and, if asked for, the weights of the defended classifiers. It holds no code, no pickle and no key.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Engine

import bench
from bench import artifacts, doubts
from bench.api import BenchError, UsageError
from bench.archive import FORMAT, MANIFEST, Archive
from bench.fingerprint import fingerprint, of_file
from bench.home import home, written_whole
from bench.keys import PrivateKey
from bench.store import database, schema, writer
from bench.store.writer import VALUES, ShardResult

JUDGED, UNJUDGED = "judged", "unjudged"
TABLES = (schema.run, schema.defence, schema.attack, schema.source, schema.board, schema.cell, schema.shard)
FLOATS = {c.name for c in schema.result.columns if isinstance(c.type, sa.Float)}
MOST_EXAMPLES = 10**7
LARGEST_NETWORK = (200, 32)  # depth and width

Tables = dict[str, list[dict[str, Any]]]


def export(engine: Engine, folder: Path, target: Path, with_weights: bool) -> tuple[int, int]:
    """Packs everything that is finished; returns the numbers of cells and rows."""
    with engine.connect() as connection:
        tables: Tables = {
            t.name: [dict(r) for r in connection.execute(sa.select(t).order_by(*t.primary_key)).mappings()] for t in TABLES
        }
        tables["shard"] = [_portable(row) for row in tables["shard"] if row["status"] == "done"]
        kept = {_key(row) for row in tables["shard"]}
        tables["cell"] = [row for row in tables["cell"] if _key(row) in kept]
        _drop_unused(tables)
        if not tables["cell"]:
            raise UsageError("nothing is finished in this database: there is nothing to export")
        rows = {f"rows/{i}.npz": _packed_rows(connection, _key(cell)) for i, cell in enumerate(tables["cell"])}
    files = {f"images/{row['images_file']}": folder / row["images_file"] for row in tables["shard"] if row["images_file"]}
    if with_weights:
        files |= _weights(tables["defence"])
    _write(target, tables, rows, files)
    return len(tables["cell"]), sum(cell["n_done"] for cell in tables["cell"])


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import did."""

    cells: int
    rows: int
    there_already: int
    unjudged: Mapping[int, str]


def import_(path: Path, db: str, folder: Path, key: PrivateKey, say: Callable[[str], None]) -> Imported:
    """Checks an archive, judges it again where that is possible, and only then writes its results."""
    with Archive(path) as archive, tempfile.TemporaryDirectory() as name:
        staged = Path(name)
        tables, rows = examine(archive, staged)
        stage = database.open_database(str(staged / "stage.db"), create=True)
        _fill(stage, tables, rows)
        from bench.verify import verify

        found = verify(stage, staged / "images", key, say, staged / "artifacts")
        stage.dispose()
        if found.problems:
            archive.refuse(f"{found.problems[0]}" + (f" (and {len(found.problems) - 1} more)" * (len(found.problems) > 1)))
        _keep_weights(staged / "artifacts")
        target = database.open_database(db, create=True)
        with database.explained(db):
            return _merge(target, folder, staged / "images", tables, rows, found.unjudged)


def examine(archive: Archive, staged: Path) -> tuple[Tables, list[list[dict[str, Any]]]]:
    """Checks everything of an archive that needs no model; its images and weights end up in a folder of their own."""
    tables = _checked(archive)
    rows = [_unpacked_rows(archive, place, cell, tables) for place, cell in enumerate(tables["cell"])]
    if len(archive.names("rows")) != len(rows):
        archive.refuse("it has rows of more cells than there are")
    _stage_images(archive, tables, staged)
    _stage_weights(archive, staged / "artifacts")
    return tables, rows


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
    packed = io.BytesIO()
    columns = {n: np.array([row[n] for row in found], np.float64 if n in FLOATS else np.int64) for n in VALUES}
    np.savez_compressed(packed, **columns)  # type: ignore[arg-type]
    return packed.getvalue()


def _weights(defences: Sequence[Mapping[str, Any]]) -> dict[str, Path]:
    by_digest = {artifact.weights_digest: artifact for artifact in artifacts.all_artifacts()}
    files = {}
    for defence in defences:
        artifact = by_digest.get(defence["weights_sha256"])
        if artifact is None:
            raise BenchError(f"the weights of {defence['name']} ({defence['weights_sha256'][:12]}…) are not here any more")
        for file in ("weights.npz", "artifact.json"):
            files[f"weights/{artifact.path.name}/{file}"] = artifact.path / file
    return files


def _write(target: Path, tables: Tables, rows: Mapping[str, bytes], files: Mapping[str, Path]) -> None:
    digests = {}
    with written_whole(target) as stream, zipfile.ZipFile(stream, "w") as packed:
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
        manifest = {"format": FORMAT, "bench": bench.__version__, "tables": tables, "files": digests}
        packed.writestr(MANIFEST, json.dumps(manifest, allow_nan=False), zipfile.ZIP_DEFLATED)


def _checked(archive: Archive) -> Tables:
    """The tables of a manifest, if every value is of its column's type and every row belongs to another."""
    given = archive.manifest.get("tables")
    if not isinstance(given, dict) or set(given) != {table.name for table in TABLES}:
        archive.refuse("its manifest does not have the tables of a run")
    for table in TABLES:
        if not isinstance(given[table.name], list):
            archive.refuse(f"its table {table.name} is no list")
        for place, row in enumerate(given[table.name]):
            _check_row(archive, table, place, row)
    _check_references(archive, given)
    return given


def _check_row(archive: Archive, table: sa.Table, place: int, row: Any) -> None:
    where = f"row {place} of its table {table.name}"
    if not isinstance(row, dict) or set(row) != {column.name for column in table.columns}:
        archive.refuse(f"{where} does not have the table's columns")
    for column in table.columns:
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


def _check_references(archive: Archive, tables: Tables) -> None:
    known = {name: {row["id"] for row in tables[name]} for name in ("run", "defence", "attack", "source", "board")}
    boards = {row["id"]: row for row in tables["board"]}
    cells = {_key(row) for row in tables["cell"]}
    for name, ids in known.items():
        if len(ids) != len(tables[name]):
            archive.refuse(f"two rows of its table {name} have one id")
    for board in tables["board"]:
        if board["defence_id"] not in known["defence"] or not 0 < board["n_examples"] <= MOST_EXAMPLES:
            archive.refuse(f"board {board['id']} has no defence, or {board['n_examples']} examples")
    if len(cells) != len(tables["cell"]) or not cells:
        archive.refuse("a cell is in it twice, or there is none")
    for cell in tables["cell"]:
        if any(cell[f"{name}_id"] not in known[name] for name in ("run", "attack", "source", "board")):
            archive.refuse("a cell belongs to a run, attack, source or board that is not in it")
    reached: dict[writer.CellKey, int] = {}
    named = set()
    for shard in sorted(tables["shard"], key=lambda row: (_key(row), row["start"])):
        key = _key(shard)
        if key not in cells or shard["status"] != "done":
            archive.refuse("a shard belongs to no cell, or is not done")
        if not reached.get(key, 0) <= shard["start"] < shard["stop"] <= boards[key[0]]["n_examples"]:
            archive.refuse(f"the shards of a cell overlap, or leave its board ({shard['start']} to {shard['stop']})")
        reached[key] = shard["stop"]
        if shard["images_file"] is not None:
            named.add(f"images/{shard['images_file']}")
    if odd := named ^ set(archive.names("images")):
        archive.refuse(f"{min(odd)} is named by a shard or among the images, but not both")


def _unpacked_rows(archive: Archive, place: int, cell: Mapping[str, Any], tables: Tables) -> list[dict[str, Any]]:
    """A cell's rows of `result`, exactly those of its shards."""
    name = f"rows/{place}.npz"
    columns = archive.arrays(archive.read(name), name)
    if set(columns) != set(VALUES):
        archive.refuse(f"{name} does not have the columns of a result")
    wanted = [i for s in tables["shard"] if _key(s) == _key(cell) for i in range(s["start"], s["stop"])]
    for column, values in columns.items():
        if values.shape != (len(wanted),) or values.dtype != (np.float64 if column in FLOATS else np.int64):
            archive.refuse(f"{name}: {column} is {values.dtype} of shape {values.shape}, not one number a row")
        if not np.isfinite(values).all() or np.abs(values).max(initial=0) >= 2**31:
            archive.refuse(f"{name}: {column} has a value out of range")
    if sorted(columns["example_idx"].tolist()) != sorted(wanted):
        archive.refuse(f"{name} has other examples than its shards")
    lists = {column: values.tolist() for column, values in columns.items()}
    return [{column: lists[column][i] for column in VALUES} for i in range(len(wanted))]


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
        with written_whole(staged / name) as stream:
            stream.write(content)


def _stage_weights(archive: Archive, folder: Path) -> None:
    for name in archive.names("weights"):
        content = archive.read(name)
        if name.endswith(".npz"):
            archive.arrays(content, name, limit=2**32)
        elif not isinstance(archive.json(content, name), dict):
            archive.refuse(f"{name} does not describe an artifact")
        with written_whole(folder / name.removeprefix("weights/")) as stream:
            stream.write(content)
    for artifact in artifacts.in_folder(folder):
        if fingerprint(artifact.spec) != artifact.fingerprint or artifact.fingerprint[:16] != artifact.path.name:
            archive.refuse(f"weights/{artifact.path.name} does not fit its fingerprint")
        if not artifact.weights.exists() or artifact.record.get("weights_sha256") != of_file(artifact.weights):
            archive.refuse(f"weights/{artifact.path.name} is not what its description says (sha256 differs)")
        recipe = artifact.spec.get("recipe", {})
        if not 0 < recipe.get("depth", 0) <= LARGEST_NETWORK[0] or not 0 < recipe.get("width", 0) <= LARGEST_NETWORK[1]:
            archive.refuse(f"weights/{artifact.path.name} is of a larger network than any here")


def _keep_weights(folder: Path) -> None:
    for artifact in artifacts.in_folder(folder):
        if artifacts.find(artifact.fingerprint) is None:
            for name in ("weights.npz", "artifact.json"):
                with written_whole(home() / "artifacts" / artifact.path.name / name) as stream:
                    stream.write((artifact.path / name).read_bytes())


def _fill(stage: Engine, tables: Tables, rows: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """The archive as a database of its own, as it was where it comes from."""
    with database.writing(stage) as connection:
        for table in TABLES:
            if tables[table.name]:
                connection.execute(sa.insert(table), tables[table.name])
        for cell, found in zip(tables["cell"], rows, strict=True):
            if found:
                connection.execute(sa.insert(schema.result), [{**writer.ids(_key(cell)), **row} for row in found])


def _merge(
    target: Engine,
    folder: Path,
    staged_images: Path,
    tables: Tables,
    rows: Sequence[Sequence[Mapping[str, Any]]],
    unjudged: Mapping[int, str],
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
    for board_id in boards.values():
        doubts.update(target, board_id)
    return Imported(cells, written, there, unjudged)


def _merge_cell(
    target: Engine,
    key: writer.CellKey,
    cell: Mapping[str, Any],
    tables: Tables,
    rows: Sequence[Mapping[str, Any]],
    folder: Path,
    staged_images: Path,
    n_examples: int,
) -> int:
    flags, parts, written = json.loads(cell["flags_json"]), json.loads(cell["parts_json"]), 0
    for shard in tables["shard"]:
        if _key(shard) != _key(cell):
            continue
        if shard["images_file"] is not None:
            with written_whole(folder / shard["images_file"]) as stream:
                stream.write((staged_images / shard["images_file"]).read_bytes())
        own = [row for row in rows if shard["start"] <= row["example_idx"] < shard["stop"]]
        result = ShardResult(
            shard["start"], shard["stop"], own, "imported", shard["seconds"], flags, parts, shard["images_file"],
            shard["images_sha256"],
        )  # fmt: skip
        if writer.record_shard(target, key, result, n_examples):
            written, flags = written + len(own), {}  # flags are of the whole cell: counted once
    return written


def _place(target: Engine, table: sa.Table, row: Mapping[str, Any]) -> int:
    return writer.ensure(target, table, {name: value for name, value in row.items() if name != "id"})


def _run(target: Engine, row: Mapping[str, Any]) -> int:
    kept = ("preset", "spec_json", "versions_json", "device", "git_commit")
    return writer.start_run(target, {"command": f"imported: {row['command']}", **{name: row[name] for name in kept}})


def _key(row: Mapping[str, Any]) -> writer.CellKey:
    return (row["board_id"], row["attack_id"], row["source_id"])
