"""Weights that came with somebody's results: kept beside one's own, as long as a database here was judged with them.

Beside each stands a list of the databases that have it. `bench verify` finds them there, and no run does: what somebody
calls a classifier of ours may be anything.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

from bench.api import BenchError
from bench.models import artifacts
from bench.store.database import url_of
from bench.store.redaction import redacted
from bench.support.files import atomic_write

USED_BY = "used_by.json"
UNKNOWN = "imported by an earlier version"


def keep(folder: Path, db: str) -> None:
    """Keeps the artifacts of a folder that are not here yet, for this database."""
    for artifact in artifacts.in_folder(folder):
        found = artifacts.with_weights(artifact.weights_sha256)
        place = artifacts.imported() / artifact.path.name
        if found is None:
            if (place / "artifact.json").exists():
                raise BenchError(f"{place} holds other weights: nothing was taken over")
            _write_users(place, {_name(db)})
            for name in ("weights.npz", "artifact.json"):
                with atomic_write(place / name) as stream:
                    stream.write((artifact.path / name).read_bytes())
        elif found.path.parent == artifacts.imported():
            _write_users(found.path, _users(found.path) | {_name(db)})


def release(db: str, used: Collection[str]) -> None:
    """Removes what this database has had and has no more, unless another has it."""
    for artifact in artifacts.in_folder(artifacts.imported()):
        users = _users(artifact.path)
        if _name(db) in users and artifact.weights_sha256 not in used:
            if users == {_name(db)}:
                (artifact.path / "artifact.json").unlink()  # without it there is no artifact
                shutil.rmtree(artifact.path)
            else:
                _write_users(artifact.path, users - {_name(db)})


def _name(db: str) -> str:
    url = url_of(db)
    if url.get_backend_name() == "sqlite":
        return str(Path(url.database or "").resolve())
    return redacted(db)


def _users(place: Path) -> set[str]:
    try:
        return set(map(str, json.loads((place / USED_BY).read_text())))
    except (OSError, ValueError, TypeError):
        return {UNKNOWN}


def _write_users(place: Path, users: set[str]) -> None:
    with atomic_write(place / USED_BY) as stream:
        stream.write(json.dumps(sorted(users)).encode())
