"""Archives of results for tests: an honest one, and ways to change it so that everything still fits together."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.evaluation import images
from bench.exchange.layout import cell_of, unpacked
from bench.store import identity, row_format, shards
from bench.support.fingerprint import canonical, fingerprint
from tests.processes import bench

Members = dict[str, bytes]


@pytest.fixture(scope="session")
def packed(honest: Path) -> Path:
    """The honest run as a file, with its weights."""
    done = bench("export", "all.zip", "--with-weights", cwd=honest, BENCH_HOME=str(honest / "home"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("all.zip: 2 cells, 12 rows")
    return honest / "all.zip"


def members(path: Path) -> Members:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def write(path: Path, content: Members, packing: int = zipfile.ZIP_DEFLATED, **manifest: Any) -> None:
    """The members as an archive whose digests fit, however odd the members are."""
    described = json.loads(content["manifest.json"])
    described["files"] = {n: hashlib.sha256(c).hexdigest() for n, c in content.items() if n != "manifest.json"}
    described |= manifest
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, data in {**content, "manifest.json": json.dumps(described).encode()}.items():
            file.writestr(name, data)


def npy(shape: str, dtype: str, data: bytes) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def npz(**arrays: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in arrays.items():
            file.writestr(f"{name}.npy", data)
    return made.getvalue()


def named(content: Members, start: str) -> str:
    return next(name for name in content if name.startswith(start) and name.endswith(".npz"))


def tables(change: Callable[[dict[str, Any]], Any]) -> Callable[[Members], Members]:
    def changed(content: Members) -> Members:
        manifest = json.loads(content["manifest.json"])
        change(manifest["tables"])
        return {**content, "manifest.json": json.dumps(manifest).encode()}

    return changed


def better_rows(content: Members) -> Members:
    """Every verdict turned to right, with totals and digests that fit: only the judge can tell."""
    manifest = json.loads(content["manifest.json"])
    at = next(i for i, cell in enumerate(manifest["tables"]["cell"]) if cell["strategy"] != "clean")
    columns = dict(np.load(io.BytesIO(content[f"rows/{at}.npz"])))
    columns["pred"], columns["correct"] = columns["label"], np.ones_like(columns["correct"])
    lists = {name: unpacked(name, values) for name, values in columns.items()}
    rows = [{name: values[i] for name, values in lists.items()} for i in range(6)]
    cell = manifest["tables"]["cell"][at]
    cell["n_correct"] = 6
    for shard in manifest["tables"]["shard"]:
        if (shard["attack_id"], shard["source_id"]) == (cell["attack_id"], cell["source_id"]):
            shard["rows_sha256"] = row_format.digest(rows[shard["start"] : shard["stop"]], shard["rows_version"])
    made = io.BytesIO()
    np.savez_compressed(made, **columns)
    return {**content, f"rows/{at}.npz": made.getvalue(), "manifest.json": json.dumps(manifest).encode()}


def of_network(**fields: object) -> Callable[[Members], Members]:
    """Weights whose description names another network, with a fingerprint that fits."""

    def change(content: Members) -> Members:
        name = next(name for name in content if name.endswith("artifact.json"))
        described = json.loads(content[name])
        described["spec"]["recipe"].update(fields)
        described["fingerprint"] = fingerprint(described["spec"])
        return {**content, name: json.dumps(described).encode()}

    return change


def left_behind(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "offered.zip"
    ]


class Forgery:
    """An archive taken apart, to be changed at will and put together so that every digest and total fits."""

    def __init__(self, path: Path) -> None:
        content = members(path)
        self.manifest: dict[str, Any] = json.loads(content.pop("manifest.json"))
        self.tables: dict[str, list[dict[str, Any]]] = self.manifest["tables"]
        self.rows = {
            int(name[5:-4]): dict(np.load(io.BytesIO(content.pop(name))))
            for name in sorted(content)
            if name[:5] == "rows/"
        }
        self.images = {
            name.removeprefix("images/"): content.pop(name) for name in sorted(content) if name[:7] == "images/"
        }
        self.rest = content

    @property
    def attacked(self) -> tuple[int, dict[str, Any]]:
        """The place and the row of the attack's cell."""
        return next((i, cell) for i, cell in enumerate(self.tables["cell"]) if cell["strategy"] != "clean")

    def shards(self, cell: dict[str, Any]) -> list[dict[str, Any]]:
        key = cell_of(cell)
        return [shard for shard in self.tables["shard"] if cell_of(shard) == key]

    def all_broken(self) -> Forgery:
        """Every verdict of the attack's cell turned to wrong."""
        columns = self.rows[self.attacked[0]]
        columns["correct"] = np.zeros_like(columns["correct"])
        columns["pred"], columns["margin"] = (columns["label"] + 1) % 10, -np.abs(columns["margin"])
        return self

    def without_images(self, start: int = 0) -> Forgery:
        """No images for the attack's examples from `start` on."""
        for shard in self.shards(self.attacked[1]):
            if shard["start"] >= start:
                self.images.pop(shard["images_file"])
                shard["images_file"] = shard["images_sha256"] = None
        return self

    def another_attack(self, **settings: object) -> Forgery:
        """The same as the result of an attack with other settings: a cell that is not there yet."""
        row = next(row for row in self.tables["attack"] if row["id"] == self.attacked[1]["attack_id"])
        row["params_json"] = canonical({**json.loads(row["params_json"]), **settings})
        return self

    def another_weight(self, place: int, value: float) -> Forgery:
        """One number of the weights changed, in the array of this place, with every digest that speaks of them."""
        (name,) = [name for name in self.rest if name.endswith("weights.npz")]
        arrays = dict(np.load(io.BytesIO(self.rest.pop(name))))
        chosen = sorted(arrays)[place % len(arrays)]
        arrays[chosen] = arrays[chosen].copy()
        arrays[chosen].flat[0] = value
        made = io.BytesIO()
        np.savez(made, **arrays)
        digest = hashlib.sha256(made.getbuffer()).hexdigest()
        (described,) = [name for name in self.rest if name.endswith("artifact.json")]
        artifact = json.loads(self.rest.pop(described))
        artifact["record"]["weights_sha256"] = digest
        self.rest[f"weights/{digest[:16]}/weights.npz"] = made.getvalue()
        self.rest[f"weights/{digest[:16]}/artifact.json"] = json.dumps(artifact).encode()
        self.tables["defence"][0]["weights_sha256"] = digest
        return self

    def another_strategy(self, name: str) -> Forgery:
        """The attack's source as one of a strategy that nobody here has."""
        _, cell = self.attacked
        row = next(row for row in self.tables["source"] if row["id"] == cell["source_id"])
        row["params_json"] = canonical({**json.loads(row["params_json"]), "strategy": name})
        cell["strategy"] = name
        return self

    def mend(self) -> Forgery:
        """Makes fingerprints, names of images, digests and totals what they should be."""
        defences = {row["id"]: row for row in self.tables["defence"]}
        for row in self.tables["defence"]:
            row["fingerprint"] = identity.of_defence(row)
        for row in self.tables["board"]:
            row["fingerprint"] = identity.of_board(row, defences[row["defence_id"]]["fingerprint"])
        for row in self.tables["attack"]:
            row["fingerprint"] = identity.of_attack(row)
        for row in self.tables["source"]:
            row["fingerprint"] = identity.of_source(row)
        for place, cell in enumerate(self.tables["cell"]):
            self._mend_cell(cell, self.rows[place])
        return self

    def _mend_cell(self, cell: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
        lists = {name: unpacked(name, values) for name, values in columns.items()}
        rows = [{name: values[i] for name, values in lists.items()} for i in range(len(lists["example_idx"]))]
        for name, column in (("n_correct", "correct"), ("gradients", "gradients"), ("queries", "queries")):
            cell[name] = sum(lists[column])
        cell["n_done"] = len(rows)
        things = {name: {row["id"]: row for row in self.tables[name]} for name in ("board", "attack", "source")}
        board, attack, source = (things[name][cell[f"{name}_id"]] for name in things)
        for shard in self.shards(cell):
            examples = set(shards.examples_of(shard))
            own = [row for row in rows if row["example_idx"] in examples]
            shard["rows_sha256"] = row_format.digest(own, shard["rows_version"])
            if shard["images_file"] in self.images:
                content = self.images.pop(shard["images_file"])
                shard["images_sha256"] = hashlib.sha256(content).hexdigest()
                own_name = identity.cell(board, attack, source)
                shard["images_file"] = images.name_of(own_name, shard["start"], shard["stop"], shard["images_sha256"])
                self.images[shard["images_file"]] = content

    def content(self) -> Members:
        """The members as they are now."""
        packed = {f"images/{name}": content for name, content in self.images.items()}
        for place, columns in self.rows.items():
            made = io.BytesIO()
            np.savez_compressed(made, **columns)
            packed[f"rows/{place}.npz"] = made.getvalue()
        return {**self.rest, **packed, "manifest.json": json.dumps(self.manifest).encode()}

    def write(self, path: Path) -> Path:
        write(path, self.content())
        return path


def everything(db: Path) -> dict[str, set[tuple[Any, ...]]]:
    """Every row of every table."""
    connection = sqlite3.connect(db)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: set(connection.execute(f"SELECT * FROM {name}")) for name in names if "sqlite_" not in name}
    connection.close()
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, and what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
