"""Weights that came with somebody's results: kept beside one's own, as long as a database here was judged with them.

Beside each stands a list of the databases that have it. `bench verify` finds them there, and no run does: what somebody
calls a classifier of ours may be anything.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from bench.api import BenchError
from bench.models import artifacts
from bench.store.database import url_of
from bench.store.redaction import redacted
from bench.support.files import atomic_write

USED_BY = "used_by.json"
UNKNOWN = "imported by an earlier version"


@contextlib.contextmanager
def keeping(folder: Path, db: str) -> Iterator[None]:
    """Keeps the artifacts of a folder that are not here yet, for this database, unless the block fails."""
    new: list[Path] = []
    try:
        _keep(folder, db, new)
        yield
    except BaseException:
        for place in new:
            _leave(place, db)
        raise


def _keep(folder: Path, db: str, new: list[Path]) -> None:
    for artifact in artifacts.in_folder(folder):
        found = artifacts.with_weights(artifact.weights_sha256)
        place = artifacts.imported() / artifact.path.name
        if found is None:
            if (place / "artifact.json").exists():
                raise BenchError(f"{place} holds other weights: nothing was taken over")
            new.append(place)
            _write_users(place, {_name(db)})
            for name in ("weights.npz", "artifact.json"):
                with atomic_write(place / name) as stream:
                    stream.write((artifact.path / name).read_bytes())
        elif found.path.parent == artifacts.imported() and _name(db) not in _users(found.path):
            new.append(found.path)
            _write_users(found.path, _users(found.path) | {_name(db)})


def release(db: str, used: Collection[str]) -> None:
    """Removes what this database has had and has no more, unless another has it."""
    for artifact in artifacts.in_folder(artifacts.imported()):
        if _name(db) in _users(artifact.path) and artifact.weights_sha256 not in used:
            _leave(artifact.path, db)


def _leave(place: Path, db: str) -> None:
    """This database has an artifact no more, which goes if no other has it."""
    users = _users(place) - {_name(db)}
    if users:
        _write_users(place, users)
    else:
        (place / "artifact.json").unlink(missing_ok=True)  # without it there is no artifact
        shutil.rmtree(place, ignore_errors=True)


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
