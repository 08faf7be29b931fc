"""Trained classifiers, kept by fingerprint: in the cache folder, or shipped with the package.

An artifact is a folder with `weights.npz` (arrays and nothing else: no pickle) and `artifact.json`, which says what
it is, how it was made and the digest of the weights. The JSON is written last: without it there is no artifact.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import BenchError
from bench.models import remote
from bench.support.cache import home
from bench.support.files import atomic_write
from bench.support.fingerprint import of_file

ZOO = Path(__file__).parents[1] / "zoo"


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A trained classifier on disk. `spec` is everything that determined it; `record` what is known of it since."""

    fingerprint: str
    path: Path
    spec: Mapping[str, Any]
    record: Mapping[str, Any]

    @property
    def weights(self) -> Path:
        return self.path / "weights.npz"

    @property
    def weights_sha256(self) -> str:
        return self.record["weights_sha256"]


def find(fingerprint: str) -> Artifact | None:
    """The artifact of this fingerprint, from the cache folder or the zoo."""
    for root in (home() / "artifacts", ZOO):
        if (root / fingerprint[:16] / "artifact.json").exists():
            return _read(root / fingerprint[:16])
    if remote.pull(fingerprint[:16], home() / "artifacts"):
        return _read(home() / "artifacts" / fingerprint[:16])
    return None


def local_weights(weights: Path) -> Path:
    """A weights file as another machine named it: the same path, else the artifact of that name in this one's folders."""
    if weights.exists():
        return weights
    found = find(weights.parent.name)
    return found.weights if found is not None else weights


def all_artifacts() -> list[Artifact]:
    """Everything there is, the cache folder first."""
    roots = (ZOO, home() / "artifacts")
    return list({artifact.fingerprint: artifact for root in roots for artifact in in_folder(root)}.values())


def imported() -> Path:
    """Where weights are kept that came with somebody's results: they judge those again, and no run ever uses them."""
    return home() / "imported"


def is_own(artifact: Artifact) -> bool:
    """Whether it was made here or came with the package, and not with somebody's results."""
    return artifact.path.parent in (home() / "artifacts", ZOO)


def with_weights(digest: str, more: Path | None = None) -> Artifact | None:
    """The artifact with these very weights, also of imported ones; `more` is another folder to look in."""
    roots = (home() / "artifacts", ZOO, imported(), *([more] if more else []))
    return next((a for root in roots for a in in_folder(root) if a.weights_sha256 == digest), None)


def in_folder(root: Path) -> list[Artifact]:
    """The artifacts in a folder, in order of their names."""
    return [_read(path.parent) for path in sorted(root.glob("*/artifact.json"))]


def save(
    fingerprint: str, spec: Mapping[str, Any], arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]
) -> Artifact:
    """Writes an artifact to the cache folder."""
    path = home() / "artifacts" / fingerprint[:16]
    with atomic_write(path / "weights.npz") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    record = {**record, "weights_sha256": of_file(path / "weights.npz")}
    with atomic_write(path / "artifact.json") as stream:
        stream.write(json.dumps({"fingerprint": fingerprint, "spec": spec, "record": record}, indent=1).encode())
    remote.push(path)
    return _read(path)


def _read(path: Path) -> Artifact:
    try:
        content = json.loads((path / "artifact.json").read_text())
        return Artifact(content["fingerprint"], path, content["spec"], content["record"])
    except (OSError, ValueError, KeyError) as error:
        raise BenchError(f"artifact {path} is damaged ({error}): remove that folder and train it again") from error
