"""Checks of sources and attacks: each model or attack that is built to deceive is told by the check that is for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from attacks.engines.autoattack import AutoAttack, AutoAttackSettings
from attacks.engines.pgd import Pgd, PgdSettings
from attacks.health import AttackProbe, SourceProbe
from attacks.health.descents import noise, one_step, survives_one
from attacks.health.gradients import slope
from bench.api import Attacked, Batch, Finding, HealthBudget, ModelSource, Source, flags
from bench.executors.replies import unchanged
from tests.attacks.conftest import Network, a_batch
from tests.attacks.test_engines import ignore

BUDGET = HealthBudget(images=16)
"""As in the preset `laptop`."""
BALLS = [("linf", 0.02), ("l2", 0.2)]
EXACTLY = dataclasses.replace(BUDGET, queries=0)


def doubts(findings: Any) -> set[str]:
    return {name for name, finding in findings.items() if flags.is_doubt(name, *finding)}


def of_source(
    forward: Callable[[tf.Tensor], tf.Tensor], batch: Batch, budget: HealthBudget = EXACTLY
) -> dict[str, Finding]:
    return dict(SourceProbe().of_source(ModelSource("deceiver", forward), batch, budget))


@pytest.fixture(scope="module")
def honest(network: Network) -> dict[str, dict[str, Finding]]:
    return {norm: of_source(network, a_batch(network, 16, norm, epsilon), BUDGET) for norm, epsilon in BALLS}


@pytest.mark.parametrize("norm", [norm for norm, _ in BALLS])
def test_an_honest_network_raises_none_and_everything_was_looked_for(honest: Any, norm: str) -> None:
    assert doubts(honest[norm]) == set()
    assert {finding.examined for finding in honest[norm].values()} == {16}
    of_attacks = {flags.STILL_LOSS, flags.NO_DLR, flags.SILENT, flags.NOT_CARRIED_OVER}
    assert set(honest[norm]) == set(flags.MEANINGS) - of_attacks


class Fading(ModelSource):
    """Its gradients are gone after so many times, whoever asks."""

    def __init__(self, forward: Any, after: int) -> None:
        super().__init__("fading", forward)
        self.asked, self.after = tf.Variable(0, trainable=False), after

    def gradient(self, loss: Any, images: Any, *labels: Any) -> Any:
        found = super().gradient(loss, images, *labels)
        keep = tf.cast(self.asked.assign_add(1) <= self.after, tf.float32)
        return dataclasses.replace(found, gradient=found.gradient * keep)


def test_gradients_that_vanish_after_some_steps(network: Network) -> None:
    # Two are asked for before the descent, which is then left without any after its step 30.
    source, batch = Fading(network, 32), a_batch(network, 16, epsilon=0.002)
    found = SourceProbe().of_source(source, batch, EXACTLY)
    assert flags.ZERO_GRADIENT in doubts(found)
    assert flags.ZERO_GRADIENT not in doubts(SourceProbe().of_source(Fading(network, 10_000), batch, EXACTLY))


def quantised(network: Network) -> Any:
    return lambda images: network(tf.round(images * 16) / 16)


def noisy(network: Network) -> Any:
    return lambda images: network(images + tf.random.normal(tf.shape(images), stddev=0.02))


def saturated(network: Network) -> Any:
    """Logits so far apart that the cross-entropy has no value left."""
    return lambda images: 40.0 * network(images)


def by_temperature(network: Network) -> Any:
    """Probabilities at a temperature that leaves nothing of their gradient in float32."""
    return lambda images: tf.nn.softmax(200.0 * network(images))


def shattered(network: Network) -> Any:
    """The right logits, with a wave on the input that is far shorter than an attack's step."""
    return lambda images: network(images + 0.004 * tf.sin(40_000.0 * images))


def jumping(network: Network) -> Any:
    """Steps of the loss that its gradient knows nothing of."""

    def forward(images: tf.Tensor) -> tf.Tensor:
        logits = network(images)
        bits = tf.floor(tf.reduce_sum(images, axis=[1, 2, 3]) * 5000.0) % 2.0
        return logits * (1 + 0.3 * tf.stop_gradient(bits)[:, None])

    return forward


def misleading(network: Network) -> Any:
    """The right logits, with the gradient turned round."""

    def forward(images: tf.Tensor) -> tf.Tensor:
        logits = network(images)
        return 2 * tf.stop_gradient(logits) - logits

    return forward


def unstable(network: Network) -> Any:
    def forward(images: tf.Tensor) -> tf.Tensor:
        # The root's slope is infinite at 0, and infinite times 0 is not a number.
        nothing = tf.square(images - tf.stop_gradient(images))
        return network(images) + tf.sqrt(tf.reduce_sum(nothing, axis=[1, 2, 3]))[:, None] * tf.range(5.0)

    return forward


DECEIVERS: list[tuple[Any, set[str], float]] = [
    (quantised, {flags.ZERO_GRADIENT, flags.SQUARE_WINS, flags.DOES_NOT_FALL, flags.SURVIVES_ONE}, 0.05),
    (noisy, {flags.RANDOMISED}, 0.02),
    (saturated, {flags.SATURATED}, 0.02),
    (by_temperature, {flags.SOFTMAX}, 0.02),
    (shattered, {flags.WRONG_GRADIENT}, 0.02),
    (jumping, {flags.UNSTABLE_LOSS}, 0.02),
    (unstable, {flags.NON_FINITE_GRADIENT}, 0.02),
    (misleading, {flags.WRONG_GRADIENT, flags.NOISE_WINS, flags.NOT_REDUCED}, 0.15),
]


@pytest.mark.parametrize(("deceiver", "names", "epsilon"), DECEIVERS, ids=[d.__name__ for d, *_ in DECEIVERS])
def test_a_source_built_to_deceive_is_told_by_the_check_for_it(
    network: Network, deceiver: Any, names: set[str], epsilon: float
) -> None:
    budget = dataclasses.replace(BUDGET, queries=200 if flags.SQUARE_WINS in names else 0)
    found = of_source(deceiver(network), a_batch(network, 16, epsilon=epsilon), budget)
    assert names <= doubts(found), found
    assert all(found[name].examined > 10 for name in names)


def test_one_step_that_beats_many(network: Network) -> None:
    batch = a_batch(network, 16, epsilon=0.05)
    source = ModelSource("honest", network)
    result = unchanged(batch.images)
    found = AttackProbe().of_attack(source, batch, result)
    assert flags.ONE_STEP_WINS in doubts(found)
    assert one_step(source, batch).sum() == found[flags.ONE_STEP_WINS].found


def attacked(engine: Any, source: Source, batch: Batch) -> set[str]:
    return doubts(AttackProbe().of_attack(source, batch, engine.run(source, batch, ignore)))


@pytest.mark.parametrize(("norm", "epsilon"), BALLS)
def test_an_attack_with_one_step_was_not_at_its_end(
    network: Network, source: Source, norm: str, epsilon: float
) -> None:
    batch = a_batch(network, 32, norm, 0.7 * epsilon)
    short = Pgd(PgdSettings(steps=1, restarts=1, rule="sign", step_size=0.3))
    assert flags.UNFINISHED in attacked(short, source, batch)
    assert attacked(Pgd(PgdSettings(steps=60, restarts=2)), source, batch) == set()


def test_an_attack_that_gives_back_its_start_got_nowhere(network: Network, source: Source) -> None:
    batch = a_batch(network, 16)
    found = AttackProbe().of_attack(source, batch, unchanged(batch.images))
    assert found[flags.NOT_REDUCED] == Finding(16, 16)
    assert found[flags.SILENT] == Finding(0, 16)


def test_an_attack_that_keeps_its_first_success_may_give_back_what_it_could_not_break(network: Network) -> None:
    source, batch = ModelSource("exact", network, exact=True), a_batch(network, 16, epsilon=0.01)
    result = AutoAttack(AutoAttackSettings(parts=("apgd-ce",), steps=20)).run(source, batch, ignore)
    unchanged_ones = (result.images == batch.images).all(axis=(1, 2, 3))
    assert 0 < unchanged_ones.sum() < 16
    assert AttackProbe().of_attack(source, batch, result)[flags.NOT_REDUCED].found == 0


def test_noise_is_not_what_the_restarts_of_an_attack_have_seen(network: Network, source: Source) -> None:
    """Else it could never beat them."""
    seen = []

    def recorded(images: tf.Tensor) -> tf.Tensor:
        tf.py_function(lambda x: seen.append(x.numpy().copy()), [images], [])
        return network(images)

    batch = a_batch(network, 2, epsilon=0.01)
    Pgd(PgdSettings(steps=1, restarts=3)).run(ModelSource("recorded", recorded), batch, ignore)
    starts = np.concatenate(seen)
    seen.clear()
    noise(ModelSource("recorded", recorded), batch, 3)
    nearest = [np.abs(starts - one[None]).max(axis=(1, 2, 3)).min() for one in np.concatenate(seen)]
    assert min(nearest) > 0.005, "the distance between two random points of the ball, not between a point and itself"


def test_an_attack_whose_word_is_wrong(network: Network, source: Source) -> None:
    batch = a_batch(network, 16)
    result = unchanged(batch.images)
    claimed: Attacked = dataclasses.replace(result, success=np.ones(16, bool))
    assert AttackProbe().of_attack(source, batch, claimed)[flags.SILENT] == Finding(16, 16)
    broken = Pgd(PgdSettings(steps=30, restarts=1)).run(source, dataclasses.replace(batch, epsilon=0.2), ignore)
    assert broken.success.all()
    silent = dataclasses.replace(broken, success=np.zeros(16, bool))
    assert AttackProbe().of_attack(source, batch, silent)[flags.SILENT] == Finding(16, 16)


def test_what_the_source_gets_wrong_anyway_is_not_attacked(network: Network, source: Source) -> None:
    batch = a_batch(network, 16)
    labels = np.where(np.arange(16) < 6, (batch.labels + 1) % 5, batch.labels).astype(np.int32)
    found = SourceProbe().of_source(source, dataclasses.replace(batch, labels=labels), EXACTLY)
    assert found[flags.RANDOMISED].examined == 16
    assert found[flags.NOISE_WINS].examined == found[flags.ZERO_GRADIENT].examined == 10


def test_square_is_left_out_by_its_budget_and_says_so(network: Network, source: Source) -> None:
    found = SourceProbe().of_source(source, a_batch(network, 4), dataclasses.replace(BUDGET, queries=0))
    assert flags.SQUARE_WINS not in found


def test_batches_do_not_change_what_is_found(network: Network) -> None:
    batch = a_batch(network, 10, epsilon=0.03)
    source = ModelSource("quantised", quantised(network))
    whole = SourceProbe().of_source(source, batch, EXACTLY)
    small = SourceProbe().of_source(source, dataclasses.replace(batch, batch_size=3), EXACTLY)
    assert whole == small


def test_the_slope_of_a_known_function() -> None:
    """Two logits, one of which is 3 times the sum of the pixels: every change is known."""
    images = np.full((2, 2, 2, 3), 0.5, np.float32)

    def forward(x: tf.Tensor) -> tf.Tensor:
        total = 3 * tf.reduce_sum(x, axis=[1, 2, 3])
        return tf.stack([total, tf.zeros_like(total)], axis=1)

    batch = Batch(images, np.zeros(2, np.int32), np.array([[1, 2], [3, 4]], np.int32), "linf", 0.16)
    found = slope(ModelSource("linear", forward), batch, images)
    np.testing.assert_allclose(found.gradient, 3.0)
    np.testing.assert_allclose(found.predicted, 2 * 0.01 * 12 * 3, rtol=1e-5)
    np.testing.assert_allclose(found.measured, found.predicted, rtol=1e-4)
    np.testing.assert_allclose(found.allowed, 2 * 0.0025 * 12 * 3, rtol=1e-5)
    assert not (found.zero | found.non_finite | found.wrong | found.unstable).any()


def test_noise_breaks_what_stands_at_the_edge(network: Any, source: Any) -> None:
    batch = a_batch(network, count=40, epsilon=0.2)
    assert noise(source, batch).any()


def test_a_source_without_any_gradient_survives_epsilon_one() -> Any:
    def flat(images: tf.Tensor) -> tf.Tensor:
        # Right about every image but a black one, and nothing that leads there.
        black = tf.cast(tf.reduce_max(images, axis=[1, 2, 3]) < 1e-3, tf.float32)
        return tf.stack([1 - black, black], axis=1)

    images = np.full((3, 8, 8, 3), 0.5, np.float32)
    batch = Batch(images, np.zeros(3, np.int32), np.zeros((3, 2), np.int32), "linf", 0.1)
    assert survives_one(ModelSource("flat", flat), batch, 20).all()
