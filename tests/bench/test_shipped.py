"""The models that come with the package are those of the manifest, and `bench verify --zoo` tells if they are not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bench import plan, spec
from bench.api import BenchError
from bench.evaluation import zoo
from bench.models import artifacts
from bench.support.fingerprint import of_file
from tests import vaults
from tests.conftest import bench

ENTRIES = zoo.manifest()


def test_the_manifest_lists_everything_in_the_zoo_and_nothing_else() -> None:
    assert {entry.fingerprint for entry in ENTRIES} == {a.fingerprint for a in artifacts.in_folder(artifacts.ZOO)}
    assert sum(path.stat().st_size for path in artifacts.ZOO.rglob("*") if path.is_file()) < 20 * 2**20


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_what_its_artifact_says(entry: Any) -> None:
    artifact = artifacts.find(entry.fingerprint)
    assert artifact is not None
    assert artifact.spec == entry.spec
    assert of_file(artifact.weights) == entry.record["weights_sha256"]
    assert artifact.record["clean_accuracy"] == entry.clean_accuracy
    assert entry.test_images == 10_000
    start = next((other.fingerprint for other in ENTRIES if other.name == entry.starts_from), None)
    assert start == entry.spec.get("start")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_default_preset_means_what_ships(entry: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCH_HOME", str(tmp_path))
    assert (
        zoo.ZooBuilder(spec.resolve("laptop"), vaults.published(), print).fingerprint(entry.name) == entry.fingerprint
    )


@pytest.mark.parametrize("defence", [entry.name for entry in ENTRIES if "@" not in entry.name])
def test_every_source_behind_all_ships(defence: Any) -> None:
    ships = {entry.name for entry in ENTRIES}
    for pair in plan.requested(spec.resolve("laptop"), defence, ["all"], (), False, False):
        itself = dict.fromkeys(("self", "self-smooth", "self-noise", "key-leaked", "query"), defence)
        plain = {**itself, "nominal": "none", "at-linf": "none@at-linf", "at-l2": "none@at-l2"}
        assert plain.get(pair.source, f"{defence}@{pair.source}") in ships


class Measured(zoo.ZooBuilder):
    """Says of every model that it gets this share of the images right."""

    def __init__(self, share: float) -> None:
        self.share = share

    def accuracy(self, name: str) -> float:
        return self.share


@pytest.mark.parametrize(("off", "found"), [(0.0005, False), (-0.0005, False), (0.002, True), (-0.002, True)])
def test_an_accuracy_that_is_another_is_named(off: float, found: Any) -> None:
    entry = ENTRIES[0]
    problem = zoo.problem(entry, Measured(entry.clean_accuracy + off), print)
    assert (problem is not None) is found
    if problem:
        assert entry.name in problem
        assert "the manifest says" in problem


def test_a_model_that_cannot_be_built_is_named() -> None:
    class Refusing(Measured):
        def accuracy(self, name: str) -> float:
            raise BenchError("there is no such classifier")

    problem = zoo.problem(ENTRIES[0], Refusing(0.0), print)
    assert problem == f"{ENTRIES[0].name}: there is no such classifier"


def test_other_weights_and_missing_ones_are_named() -> None:
    entry = ENTRIES[0]
    changed = dataclasses.replace(entry, record={**entry.record, "weights_sha256": "0" * 64})
    assert "sha256 differs" in str(zoo.problem(changed, Measured(entry.clean_accuracy), print))
    gone = dataclasses.replace(entry, fingerprint="0" * 64)
    assert "not in the zoo" in str(zoo.problem(gone, Measured(entry.clean_accuracy), print))


@pytest.mark.needs_process
def test_the_sample_inside_the_package_is_too_little_to_verify(tmp_path: Path) -> None:
    done = bench("verify", "--zoo", cwd=tmp_path, BENCH_HOME=str(tmp_path / "empty"))
    assert done.returncode == 2
    assert "bench data fetch" in done.stderr


def test_a_manifest_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = {entry.name: a for entry in ENTRIES if (a := artifacts.find(entry.fingerprint))}
    monkeypatch.setattr(artifacts, "ZOO", tmp_path)
    assert zoo.manifest() == []
    zoo.write_manifest([entry.name for entry in ENTRIES], found)
    assert zoo.manifest() == ENTRIES
    assert json.loads((tmp_path / "manifest.json").read_text())[0]["name"] == ENTRIES[0].name
