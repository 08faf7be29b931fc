"""The checks of sources, as `laptop` has them, on models that ship: of honest ones they say what is true, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from attacks.health import SourceProbe
from bench import plan, spec
from bench.api import Batch, flags
from bench.data import datasets
from bench.evaluation import zoo
from bench.support import devices
from tests import vaults

pytestmark = pytest.mark.slow
devices.configure()
LAPTOP = spec.resolve("laptop")
HONEST = [("none", "at-linf", "linf"), ("linac", "nominal", "l2"), ("linac", "surrogate:1", "linf")]


@pytest.fixture(scope="module")
def builder() -> zoo.ZooBuilder:
    return zoo.ZooBuilder(LAPTOP, vaults.published(), print)


def doubts(builder: zoo.ZooBuilder, defence: str, source: str, norm: str) -> dict[str, Any]:
    budget, examples = LAPTOP.health_of(source.partition(":")[0]), datasets.load("cifar10").examples(16)
    count = budget.images
    seeds = plan.example_seeds(0, "health", range(count))
    batch = Batch(examples.unit()[:count], examples.labels[:count], seeds, norm, LAPTOP.epsilon[norm])
    found = SourceProbe().of_source(builder.source(f"{defence}@{source}"), batch, budget)
    assert len(found) == 14, "every check was made"
    return {name: finding for name, finding in found.items() if flags.is_doubt(name, *finding)}


@pytest.mark.parametrize(("defence", "source", "norm"), HONEST, ids=[f"{source}-{norm}" for _, source, norm in HONEST])
def test_an_honest_source_raises_none(builder: zoo.ZooBuilder, defence: str, source: str, norm: str) -> None:
    assert doubts(builder, defence, source, norm) == {}


def test_a_stand_in_for_the_gradient_is_told(builder: zoo.ZooBuilder) -> None:
    assert flags.WRONG_GRADIENT in doubts(builder, "jpeg-10", "self", "linf")
