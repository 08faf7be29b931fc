"""The models that come with the package: `zoo/manifest.json` says what each is, how it was made and how good it is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bench import plan
from bench.api import BenchError
from bench.evaluation import contest
from bench.executors.worker import Attacker
from bench.models import artifacts, catalogue
from bench.models.workshop import TrainingWorkshop
from bench.spec import Spec
from bench.support.fingerprint import of_file
from bench.vault.base import Vault

TOLERANCE = 0.001
"""How far an accuracy may be from the manifest's: other processors round otherwise."""

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class ZooEntry:
    """A defence's classifier, or a model for attacks on it: `none`, `linac`, `linac@surrogate:1`, `none@at-linf`."""

    name: str
    fingerprint: str
    clean_accuracy: float
    test_images: int
    starts_from: str | None
    """The entry whose weights it was trained from, if not from random ones."""
    spec: Mapping[str, Any]
    record: Mapping[str, Any]


def manifest() -> list[ZooEntry]:
    """What the zoo holds; nothing if there is none yet."""
    path = artifacts.ZOO / "manifest.json"
    return [ZooEntry(**entry) for entry in json.loads(path.read_text())] if path.exists() else []


def write_manifest(names: Iterable[str], found: Mapping[str, artifacts.Artifact]) -> None:
    """Lists artifacts of the zoo under their names, in this order."""
    by_fingerprint = {artifact.fingerprint: name for name, artifact in found.items()}
    entries = []
    for name in names:
        if name not in found:
            continue
        artifact, record = found[name], dict(found[name].record)
        start = artifact.spec.get("start")
        entries.append(
            ZooEntry(
                name,
                artifact.fingerprint,
                record.pop("clean_accuracy"),
                record.pop("test_images"),
                by_fingerprint.get(start) if start else None,
                artifact.spec,
                record,
            )
        )
    (artifacts.ZOO / "manifest.json").write_text(
        json.dumps([dataclasses.asdict(entry) for entry in entries], indent=1) + "\n"
    )


class ZooBuilder:
    """Builds the models of the zoo by name, and measures them on all test images."""

    def __init__(self, spec: Spec, vault: Vault, say: Say, may_train: bool = False) -> None:
        self._spec, self._vault, self._say, self._may_train = spec, vault, say, may_train
        self._attacker = Attacker(say)

    def contest(self, name: str) -> contest.Contest:
        """The defended model that an entry belongs to."""
        return contest.prepare(self._spec, name.partition("@")[0], self._vault, None, self._may_train, self._say)

    def source(self, name: str) -> Any:
        """An attacker's model."""
        ready, source = self.contest(name), name.partition("@")[2]
        (offer,) = plan.sources([source], ready.defence_name, ready.defence)
        return self._attacker.source(ready.setup(self._may_train), offer.strategy, offer.source)

    def fingerprint(self, name: str) -> str:
        """Of the artifact behind an entry, which is trained if it is not there and may be."""
        ready = self.contest(name)
        if "@" not in name:
            assert ready.defended is not None
            return ready.defended
        self.source(name)
        workshop = self._attacker.known(ready.setup(self._may_train)).workshop
        assert isinstance(workshop, TrainingWorkshop)
        return workshop.used[-1].fingerprint

    def accuracy(self, name: str) -> float:
        """The share of the dataset's test images that it gets right, a defended model with its key."""
        from bench.models.inference import classify

        ready = self.contest(name)
        test = ready.dataset.test
        if "@" not in name:
            images = test.unit()
            return float(ready.referee.judge(images, test.labels, images, "linf", 0.0).correct.mean())
        source = self.source(name)
        logits = classify(lambda images, training: source.forward(images), lambda x: x, ready.dataset.shape)
        return catalogue.accuracy(logits, test)


def problem(entry: ZooEntry, builder: ZooBuilder, say: Say) -> str | None:
    """What does not hold of an entry, if anything: a weights file that was changed, or an accuracy that is another."""
    artifact = artifacts.find(entry.fingerprint)
    if artifact is None:
        return f"{entry.name}: the manifest names {entry.fingerprint[:16]}, which is not in the zoo"
    if artifact.path.parent != artifacts.ZOO:
        return (
            f"{entry.name}: {artifact.path} stands before the zoo's: move it away, or set BENCH_HOME to another folder"
        )
    if of_file(artifact.weights) != entry.record["weights_sha256"]:
        return f"{entry.name}: {artifact.weights} is not what the manifest lists (its sha256 differs)"
    try:
        accuracy, listed = 100 * builder.accuracy(entry.name), 100 * entry.clean_accuracy
    except BenchError as error:
        return f"{entry.name}: {error}"
    say(f"{entry.name}: {accuracy:.2f} % of the test images, {listed:.2f} % in the manifest")
    if abs(accuracy - listed) > 100 * TOLERANCE:
        return f"{entry.name}: {accuracy:.2f} % of the test images are right, the manifest says {listed:.2f} %"
    return None
