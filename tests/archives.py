"""Archives of results for tests: an honest one, and ways to change it so that everything still fits together."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.store import row_format
from bench.support.fingerprint import fingerprint
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


def write(path: Path, content: Members, **manifest: Any) -> None:
    """The members as an archive whose digests fit, however odd the members are."""
    described = json.loads(content["manifest.json"])
    described["files"] = {n: hashlib.sha256(c).hexdigest() for n, c in content.items() if n != "manifest.json"}
    described |= manifest
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
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
    rows = [{name: values[i].item() for name, values in columns.items()} for i in range(6)]
    cell = manifest["tables"]["cell"][at]
    cell["n_correct"] = 6
    for shard in manifest["tables"]["shard"]:
        if (shard["attack_id"], shard["source_id"]) == (cell["attack_id"], cell["source_id"]):
            shard["rows_sha256"] = row_format.digest(rows[shard["start"] : shard["stop"]], 1)
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
