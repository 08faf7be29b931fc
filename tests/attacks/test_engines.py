"""What every engine keeps to: the contract, the ball and the range, and refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import registry
from bench.api import Batch, ModelSource, UsageError
from bench.testing import check_engine
from tests.attacks.conftest import SHAPE, a_batch
from tests.attacks.engines import ENGINES
from tests.attacks.test_balls import distance

EPSILONS = {"linf": 0.01, "l2": 0.12}
each_engine = pytest.mark.parametrize("name", list(ENGINES))


def ignore(_: int) -> None:
    """A report nobody reads."""


def rows_of(batch: Batch, rows: np.ndarray, batch_size: int) -> Batch:
    return dataclasses.replace(
        batch, images=batch.images[rows], labels=batch.labels[rows], seeds=batch.seeds[rows], batch_size=batch_size
    )


VARIANTS = ("pgd-sign", "square-on", "apgd-ce-best", "fab-t-best", "aa-apart")
QUICK = ("pgd", "mt", "square", "apgd-ce")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in (*ENGINES, "boosted[steps=10]")]
)
def test_every_engine_keeps_the_contract(name: str) -> None:
    """With other settings of an engine, in one norm."""
    check_engine(ENGINES.get(name, name), in_norms=("linf",) if name in VARIANTS else ("linf", "l2"))


def test_every_built_in_engine_is_held_to_it() -> None:
    held = {type(engine) for engine in ENGINES.values()} | {registry.engine_class("boosted")}
    built_in = [n for n in registry.engine_classes() if registry.entry("attacks", n).built_in]
    assert {registry.engine_class(name) for name in built_in} == held


@each_engine
@pytest.mark.parametrize("norm", list(EPSILONS))
def test_an_honest_network_raises_no_doubts(name: str, norm: str, network: Any, sources: Any) -> None:
    batch = a_batch(network, count=6, norm=norm, epsilon=EPSILONS[norm])
    result = ENGINES[name].run(sources[True], batch, ignore)
    assert result.success.any(), "an attack that never succeeds proves nothing"
    assert not result.flags


@each_engine
@given(
    norm=st.sampled_from(list(EPSILONS)),
    epsilon=st.sampled_from([0.0, 1e-4, 8 / 255, 0.5, 1.0, 3.0]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_image_is_in_the_ball_and_the_range(name: str, norm: str, epsilon: float, seed: int, source: Any) -> None:
    generator = np.random.default_rng(seed)
    edges = np.array([0.0, 1.0, 2.0**-24, 1 - 2.0**-24, 0.5, 1 / 255, 254 / 255], np.float32)
    images = generator.choice(edges, size=(4, *SHAPE)).astype(np.float32)
    images[0], images[1] = 0.0, 1.0
    batch = Batch(images, generator.integers(0, 5, 4).astype(np.int32), np.full((4, 2), seed, np.int32), norm, epsilon)
    result = ENGINES[name].run(source, batch, ignore)
    assert np.isfinite(result.images).all()
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    assert distance(norm, result.images, images).max() <= epsilon + 1e-6


@each_engine
def test_an_empty_batch_is_no_trouble(name: str, source: Any, network: Any) -> None:
    batch = rows_of(a_batch(network), np.array([], int), 4)
    result = ENGINES[name].run(source, batch, ignore)
    assert result.images.shape == (0, *SHAPE)
    assert len(result.success) == 0


@each_engine
def test_without_gradients_an_engine_that_needs_them_refuses(name: str, network: Any) -> None:
    blind = ModelSource("query", network, has_gradient=False)
    engine = ENGINES[name]
    if engine.needs_gradient:
        with pytest.raises(UsageError, match="needs gradients and source 'query' has none: use square"):
            engine.run(blind, a_batch(network), ignore)
    else:
        engine.run(blind, a_batch(network), ignore)
