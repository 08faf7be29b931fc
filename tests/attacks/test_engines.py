"""What every engine must hold: the ball, the range, the books, and independence of batches, order and shards."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attacks.parts.ledger import clean_margin
from bench.api import Attacked, Batch, ModelSource, UsageError
from tests.attacks.conftest import SHAPE, Network, a_batch
from tests.attacks.engines import ENGINES
from tests.attacks.test_balls import distance

COLUMNS = ("images", "success", "margin", "restart", "target", "gradients", "queries")
EPSILONS = {"linf": 0.01, "l2": 0.12}
each_engine = pytest.mark.parametrize("name", list(ENGINES))
each_norm = pytest.mark.parametrize("norm", list(EPSILONS))
both_kinds = pytest.mark.parametrize("exact", [pytest.param(False, marks=pytest.mark.slow), True])


def ignore(_: int) -> None:
    """A report nobody reads."""


def rows_of(batch: Batch, rows: np.ndarray, batch_size: int) -> Batch:
    return dataclasses.replace(
        batch, images=batch.images[rows], labels=batch.labels[rows], seeds=batch.seeds[rows], batch_size=batch_size
    )


def assert_same(found: Attacked, expected: Attacked, rows: np.ndarray) -> None:
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(found, column), getattr(expected, column)[rows], err_msg=column)
    if expected.part is not None:
        np.testing.assert_array_equal(found.part, expected.part[rows])


@each_engine
@each_norm
@both_kinds
def test_batch_size_order_and_shards_change_nothing(
    name: str, norm: str, exact: bool, network: Any, sources: Any
) -> None:
    source = sources[exact]
    batch = a_batch(network, count=7, norm=norm, epsilon=EPSILONS[norm])
    engine = ENGINES[name]
    whole = engine.run(source, dataclasses.replace(batch, batch_size=7), ignore)
    for batch_size, rows in ((1, np.arange(7)), (3, np.arange(7)[::-1]), (2, np.array([5, 0, 3]))):
        assert_same(engine.run(source, rows_of(batch, rows, batch_size), ignore), whole, rows)


@each_engine
@each_norm
@both_kinds
def test_the_books_are_right(name: str, norm: str, exact: bool, network: Any, sources: Any) -> None:
    source = sources[exact]
    batch = a_batch(network, count=6, norm=norm, epsilon=EPSILONS[norm])
    engine = ENGINES[name]
    reported: list[int] = []
    result = engine.run(source, batch, reported.append)
    assert sum(reported) == engine.work(6)
    assert all(amount > 0 for amount in reported)
    margin = clean_margin(source.logits(result.images).numpy(), batch.labels)
    np.testing.assert_array_equal(result.margin, margin)
    np.testing.assert_array_equal(result.success, margin < 0)
    assert result.success.any(), "an attack that never succeeds proves nothing"
    assert (result.queries > 0).all()
    assert not result.flags, "an honest network raises no doubts"


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


@each_engine
def test_another_seed_is_another_attack_and_the_same_seed_the_same(name: str, source: Any, network: Network) -> None:
    batch = a_batch(network)
    first = ENGINES[name].run(source, batch, ignore)
    again = ENGINES[name].run(source, batch, ignore)
    np.testing.assert_array_equal(first.images, again.images)
