"""What `bench list models` says of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.api import attacker_key
from bench.evaluation import zoo
from bench.models import roles
from bench.models.artifacts import Artifact
from tests.conftest import bench


def artifact(name: str = "linac", key: str | None = None, **more: Any) -> Artifact:
    spec = {"defence": {"name": name}, "key": key, "recipe": {}, "start": None, **more}
    return Artifact("0" * 64, Path("nowhere"), spec, {})


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (artifact(key="mine"), "classifier of linac"),
        (artifact("none"), "classifier of none; source nominal against every defence with a key"),
        (artifact(what="bypass"), "source bypass against linac"),
        (artifact(key=f"attacker:{attacker_key(3)}"), "source against linac, under the attacker's key 3"),
        (artifact(key="attacker:12345"), "source against linac, under the attacker's key 12345"),
        (
            artifact("none", recipe={"adversary": {"norm": "l2"}}, start="f" * 64),
            "source at-l2 against every defence with a key, trained from other weights on",
        ),
    ],
)
def test_a_model_is_told_from_its_description(model: Artifact, said: str) -> None:
    assert roles.role_of(model, {}) == said


@pytest.mark.needs_process
def test_every_model_of_the_zoo_is_listed_by_what_it_is_for(tmp_path: Path) -> None:
    lines = bench("list", "models", cwd=tmp_path, BENCH_HOME=str(tmp_path / "home")).stdout.splitlines()
    said = {line.split()[0]: line for line in lines}
    for entry in zoo.manifest():
        defence, _, source = entry.name.partition("@")
        wanted = f"source {source} against" if source else f"classifier of {defence}"
        assert wanted in said[entry.fingerprint[:16]]
        assert f"clean {100 * entry.clean_accuracy:.2f} %" in said[entry.fingerprint[:16]]
