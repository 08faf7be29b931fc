"""Recipes: their JSON is what it always was, new fields do not count at their default, and broken rules are named."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import field
from pathlib import Path
from typing import Any

import pytest

from bench import spec
from bench.api import UsageError
from bench.data import datasets
from bench.evaluation import zoo
from bench.models import catalogue, recipe
from bench.models.adversary import Adversary
from bench.models.recipe import Recipe
from bench.support import versioned
from bench.support.fingerprint import fingerprint
from bench.support.versioned import FIRST, since
from tests.networks import wide

FIRST_FIELDS = {
    "depth", "width", "epochs", "batch_size", "slices", "learning_rate", "schedule", "drops", "warmup", "momentum",
    "weight_decay", "average", "cutmix", "crop_and_flip", "seed",
}  # fmt: skip


@pytest.mark.parametrize("entry", zoo.manifest(), ids=lambda entry: entry.name)
def test_the_recipes_of_what_ships_are_read_and_written_as_they_are(entry: zoo.ZooEntry) -> None:
    read = Recipe.from_json(entry.spec["recipe"])
    assert json.loads(json.dumps(read.as_json())) == entry.spec["recipe"]
    assert list(read.as_json()) == list(entry.spec["recipe"]), "in the same order too"
    assert fingerprint({**entry.spec, "recipe": read.as_json()}) == entry.fingerprint


def test_the_fingerprint_of_the_papers_recipe() -> None:
    assert set(Recipe().as_json()) == FIRST_FIELDS
    assert fingerprint(Recipe().as_json()) == "24908be542f9e6c451226e1a3f7ae2764e52ef77dbf835e8b724644a17ac85ce"
    assert (
        fingerprint(recipe.of_run(spec.resolve("smoke"), "linac")[0].as_json())
        == "3faf98587c429feb335eea695bac3813cdd5a21c6abe9c0e3c667b7c7c076dbf"
    )


def test_a_field_counts_from_its_version_on_and_where_it_does_something() -> None:
    @dataclasses.dataclass(frozen=True)
    class Inner:
        old: int = 1
        new: int = field(default=2, metadata=since(2))

    @dataclasses.dataclass(frozen=True)
    class Outer:
        old: float = 0.0
        newer: float = field(default=0.5, metadata=since(2))
        newest: Inner | None = field(default=None, metadata=since(3))

    assert versioned.as_json(Outer()) == {"old": 0.0}
    assert versioned.as_json(Outer(newer=0.0)) == {"old": 0.0, "newer": 0.0}, "0 is not its default"
    assert versioned.as_json(Outer(newest=Inner())) == {"old": 0.0, "newest": {"old": 1}}
    assert versioned.as_json(Outer(newest=Inner(new=3))) == {"old": 0.0, "newest": {"old": 1, "new": 3}}


def test_every_field_after_the_first_version_has_a_default_that_did_nothing_before() -> None:
    later = {f.name: f.default for f in dataclasses.fields(Recipe) if versioned.version_of(f) != FIRST}
    assert {"adversary": None, "copies": 0, "images": 0}.items() <= later.items()
    assert not FIRST_FIELDS & later.keys()


def test_later_fields_are_in_the_json_where_they_do_something() -> None:
    changed = Recipe(wide(10, 1), cutmix=False, images=5, adversary=Adversary("l2", 0.5))
    assert changed.as_json().keys() - FIRST_FIELDS == {"images", "adversary"}
    assert changed.as_json()["adversary"] == {"norm": "l2", "epsilon": 0.5, "steps": 10, "step": 0.25}
    assert Recipe.from_json(json.loads(json.dumps(changed.as_json()))) == changed


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"epochs": 0}, "epochs is 0; epochs must be at least 1"),
        ({"batch_size": 0}, "batch_size is 0; batch_size must be at least 1"),
        ({"slices": 3, "batch_size": 16}, "slices is 3; slices must divide batch_size, 16"),
        ({"slices": 0}, "slices is 0; slices must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; learning_rate must be above 0"),
        ({"schedule": "sometimes"}, "schedule is sometimes; schedule must be step or cosine"),
        ({"average": 1.0}, "average is 1.0; average must be at least 0 and below 1"),
        ({"momentum": -0.1}, "momentum is -0.1; momentum must be at least 0 and below 1"),
        ({"warmup": 1.5}, "warmup is 1.5; warmup must be at least 0 and below 1"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; weight_decay must not be below 0"),
        ({"images": -1}, "images is -1; images must not be below 0"),
        ({"copies": 2}, "copies is 2; kept copies go without cutmix"),
        (
            {"copies": 2, "cutmix": False, "adversary": {"norm": "linf", "epsilon": 0.03}},
            "copies is 2; kept copies go without an adversary",
        ),
        ({"adversary": {"norm": "linf", "epsilon": 0}}, "the adversary's epsilon is 0; it must be above 0"),
        ({"adversary": {"norm": "linf", "epsilon": 0.1, "steps": 0}}, "steps is 0; it must be at least 1"),
        ({"adversary": {"norm": "linf"}}, "the adversary needs epsilon"),
        ({"adversary": {"norm": "linf", "epsilon": "8/255"}}, "epsilon is '8/255'; it must be of type float"),
        ({"adversary": {"norm": "linf", "epsilon": 0.1, "eps": 1}}, "the adversary has no field 'eps'"),
        ({"adversary": "fgsm"}, "adversary is 'fgsm'"),
        ({"epochs": "many"}, "epochs is 'many'; it must be of type int"),
        ({"epochs": 1.5}, "epochs is 1.5; it must be of type int"),
        ({"epochs": True}, "epochs is True; it must be of type int"),
        ({"cutmix": 1}, "cutmix is 1; it must be of type bool"),
        ({"drops": [0.5, "later"]}, "drops is (0.5, 'later')"),
        ({"epoch": 3}, "training has no field 'epoch': did you mean 'epochs'?"),
        ({"depth": 11}, "depth is 11; a wide residual network has 6·n + 4 layers"),
    ],
)
def test_the_rule_that_was_broken_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Recipe.from_json(fields)
    assert said in str(caught.value)


def test_numbers_stay_as_they_were_written() -> None:
    """1 and 1.0 are two fingerprints: a preset's classifiers are found by the one it was written with."""
    assert json.dumps(Recipe.from_json({"learning_rate": 1}).as_json()["learning_rate"]) == "1"
    assert json.dumps(Recipe.from_json({"learning_rate": 1.0}).as_json()["learning_rate"]) == "1.0"


def test_the_paper_schedule() -> None:
    rates = [Recipe().rate(epoch / 1000) for epoch in (0, 649, 650, 800, 900, 950)]
    assert rates == pytest.approx([0.4, 0.4, 0.04, 4e-3, 4e-4, 4e-5])


def test_every_field_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "presets.md").read_text()
    table = text[text.index("## Fields of `[training]`") : text.index("### Networks")]
    for name in (*(f.name for f in dataclasses.fields(Recipe)), *recipe.FLAT_SETTINGS):
        assert f"`{name}`" in table, f"{name} is not in docs/presets.md"


@pytest.mark.parametrize(("role", "start"), [("surrogate", None), ("surrogate-warm", "f" * 64)])
def test_only_a_warm_surrogate_starts_from_the_defended_classifier(role: str, start: str | None) -> None:
    paper = spec.resolve("paper")
    name, defence = paper.defence("linac")
    roles = (f"{role}:linac", role)
    found = catalogue.spec_for(paper, datasets.load("cifar10"), name, defence, "attacker:1", roles, "f" * 64)
    assert found.start == start
