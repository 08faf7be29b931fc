"""AutoAttack's constants, its parts and versions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from attacks.engines.apgd import ApgdCe, ApgdSettings, ApgdT, ApgdTargetedSettings
from attacks.engines.autoattack import VERSIONS, AutoAttack, AutoAttackSettings
from attacks.engines.fab import FabSettings, FabT
from attacks.engines.square import SquareSettings, shares
from attacks.parts.apgd_steps import checkpoints
from attacks.parts.engine import BatchEngine, Task
from attacks.parts.square_moves import bump
from bench import norms
from bench.api import UsageError, flags
from tests.attacks.conftest import SHAPE, a_batch
from tests.attacks.test_engines import ignore

SHORT: dict[str, Any] = {"steps": 6, "queries": 30, "targets": 2}


def test_apgd_checks_itself_where_the_paper_does() -> None:
    closes = checkpoints(100)
    assert (np.flatnonzero(closes) + 1).tolist() == [22, 41, 57, 70, 80, 87, 93, 99]
    assert closes[closes > 0].tolist() == [22, 19, 16, 13, 10, 7, 6, 6]


def test_square_halves_its_windows_on_schedule() -> None:
    found = shares(SquareSettings(queries=10_000))
    for iteration, halvings in ((1, 0), (10, 0), (11, 1), (50, 1), (51, 2), (201, 3), (501, 4), (8001, 9), (9999, 9)):
        assert found[iteration - 1] == 0.8 / 2**halvings
    stretched = shares(SquareSettings(queries=5000, rescale=True))
    assert stretched[4] == 0.8
    assert stretched[5] == 0.4
    assert len(found) == 9999


def test_square_windows_in_l2_are_odd_and_at_least_three() -> None:
    sides = norms.named("l2").ball().square_moves((32, 32, 3)).sides(shares(SquareSettings(queries=10_000)))
    assert sides[0] == 29
    assert (sides % 2 == 1).all()
    assert sides.min() == 3
    assert norms.named("linf").ball().square_moves((32, 32, 3)).sides(np.array([0.8, 0.0001])).tolist() == [29, 1]


@pytest.mark.parametrize("side", [1, 2, 3, 5, 6, 29])
def test_a_bump_is_two_hills_of_opposite_sign(side: int) -> None:
    whole = bump(side)
    assert whole.shape == (side, side)
    np.testing.assert_allclose((whole**2).sum(), 1)
    assert (whole[side // 2 :] < 0).all()
    assert (whole[: side // 2] > 0).all()
    if side > 4:  # highest in the middle of each hill
        assert divmod(int(whole[: side // 2].argmax()), side) == (side // 4, side // 2)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_square_uses_the_whole_ball_and_moves_one_window(norm: str) -> None:
    moves = norms.named(norm).ball().square_moves(SHAPE)
    seeds = tf.constant([[1, 2], [3, 4]], tf.int32)
    origin = tf.fill([2, *SHAPE], 0.5)
    epsilon = tf.constant(0.1)
    start = moves.start(origin, seeds, epsilon)
    np.testing.assert_allclose(moves.ball.size(start - origin), 0.1, rtol=1e-4)
    drawn = tf.constant(np.random.default_rng(0).uniform(size=(2, moves.draws())), tf.float32)
    moved = moves.propose(start, origin, epsilon, drawn, tf.constant(3))
    np.testing.assert_allclose(moves.ball.size(moved - origin), 0.1, rtol=1e-4)
    assert (np.abs(moved - start).max(axis=(1, 2, 3)) > 0).all()


@pytest.mark.slow
def test_the_cascade_says_which_part_broke_which_example(source: Any, network: Any) -> None:
    batch = a_batch(network, count=8, epsilon=0.01)
    engine = AutoAttack(AutoAttackSettings(keep="first-success", **SHORT))
    result = engine.run(source, batch, ignore)
    assert tuple(engine.parts) == VERSIONS["standard"]
    assert result.part is not None
    np.testing.assert_array_equal(result.part >= 0, result.success)
    only = AutoAttackSettings(parts=("apgd-ce",), keep="first-success", **SHORT)
    first = AutoAttack(only).run(source, batch, ignore)
    np.testing.assert_array_equal(first.success, result.part == 0)
    np.testing.assert_array_equal(first.images[first.success], result.images[first.success])
    # What no part broke is given back as it came: AutoAttack keeps successes only.
    np.testing.assert_array_equal(result.images[~result.success], batch.images[~result.success])


def test_the_cascade_breaks_what_its_parts_break_alone(source: Any, network: Any) -> None:
    batch = a_batch(network, count=8, epsilon=0.008)
    cascade = AutoAttack(AutoAttackSettings(**SHORT)).run(source, batch, ignore)
    apart = AutoAttack(AutoAttackSettings(cascade=False, **SHORT)).run(source, batch, ignore)
    np.testing.assert_array_equal(cascade.success, apart.success)
    np.testing.assert_array_equal(cascade.part, apart.part)
    assert (apart.gradients >= cascade.gradients).all()


@pytest.mark.slow
def test_the_best_margin_transfers_better_than_the_first_success(source: Any, network: Any) -> None:
    batch = a_batch(network, epsilon=0.02)
    first = AutoAttack(AutoAttackSettings(keep="first-success", **SHORT)).run(source, batch, ignore)
    best = AutoAttack(AutoAttackSettings(keep="best-margin", **SHORT)).run(source, batch, ignore)
    assert (best.margin <= first.margin).all()
    assert (best.margin < first.margin).any()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        (AutoAttack, AutoAttackSettings(parts=("apgd-ce", "fab-t"), **SHORT)),
        (ApgdCe, ApgdSettings(steps=6)),
        (ApgdT, ApgdTargetedSettings(steps=6, targets=2)),
        (FabT, FabSettings(steps=6, targets=2)),
    ],
    ids=["aa", "apgd-ce", "apgd-t", "fab-t"],
)
def test_the_best_margin_is_the_default_where_the_source_is_not_the_defended_model(
    sources: Any, network: Any, exact: bool, engine: Any, settings: Any
) -> None:
    batch = a_batch(network, epsilon=0.02)
    keeps = ("first-success", "best-margin")
    default = engine(settings).run(sources[exact], batch, ignore)
    first, best = (
        engine(dataclasses.replace(settings, keep=keep)).run(sources[exact], batch, ignore) for keep in keeps
    )
    np.testing.assert_array_equal(default.images, (first if exact else best).images)
    assert exact or default.margin.sum() < first.margin.sum(), "deeper than the boundary"
    if engine is AutoAttack and exact:
        assert (default.queries == 1).all()


def stub(margins: list[float], gradient: bool = True) -> BatchEngine:
    """A part that finds an image of these margins for the examples it is given."""

    class Stub(BatchEngine):
        needs_gradient = gradient

        def attack(self, task: Task) -> None:
            rows = task.rows()
            found = task.images[rows] + np.float32(0.001)
            task.ledger.spend(rows, queries=1)
            task.ledger.offer(rows, found, np.array(margins, np.float32)[rows], 0)

    return Stub()


@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize("keep", ["first-success", "best-margin"])
def test_a_part_is_named_for_breaking_an_example_and_not_for_bettering_it(
    source: Any, network: Any, keep: Any, cascade: bool
) -> None:
    batch = dataclasses.replace(a_batch(network, count=4), batch_size=4)
    engine = AutoAttack(AutoAttackSettings(keep=keep, cascade=cascade))
    engine.parts = {"one": stub([-1, 0.001, 0.001, 0.001]), "two": stub([-2, -2, 0, 0]), "three": stub([-3, -3, -3, 0])}
    result = engine.run(source, batch, ignore)
    assert result.part is not None
    assert result.part.tolist() == [0, 1, 2, -1]
    best = keep == "best-margin"
    assert result.margin[:3].tolist() == ([-3, -3, -3] if best else [-1, -2, -3])
    # One query for the clean image, and one for every part that attacked it.
    assert result.queries.tolist() == ([4, 4, 4, 4] if best or not cascade else [2, 3, 4, 4])


@pytest.mark.parametrize("keep", ["first-success", "best-margin"])
def test_a_part_without_gradients_that_alone_breaks_an_example_is_flagged(source: Any, network: Any, keep: Any) -> None:
    batch = dataclasses.replace(a_batch(network, count=3), batch_size=3)
    engine = AutoAttack(AutoAttackSettings(keep=keep))
    engine.parts = {"gradients": stub([-1, 0, 0]), "search": stub([-2, -2, 0], gradient=False)}
    assert engine.run(source, batch, ignore).flags == {flags.SQUARE_WINS: 1}
    engine.parts = {"search": stub([-2, -2, 0], gradient=False)}
    assert flags.SQUARE_WINS not in engine.run(source, batch, ignore).flags, "there was no gradient to beat"


@pytest.mark.parametrize("version", list(VERSIONS))
def test_every_version_runs(version: Any, source: Any, network: Any) -> None:
    batch = a_batch(network, count=3, epsilon=0.01)
    engine = AutoAttack(AutoAttackSettings(version=version, steps=3, queries=26, targets=2))
    reported: list[int] = []
    engine.run(source, dataclasses.replace(batch, norm="linf"), reported.append)
    assert tuple(engine.parts) == VERSIONS[version]
    assert sum(reported) == engine.work(3)


def test_a_part_that_is_not_in_the_version_is_refused() -> None:
    with pytest.raises(UsageError, match="part 'fab' is not in AutoAttack standard: use some of apgd-ce, apgd-t"):
        AutoAttackSettings(parts=("fab",))
