"""Flags and doubts: raised by models built to deceive, silent on an honest one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from attacks import probes
from attacks.engines.apgd import ApgdCe, ApgdDlr, ApgdSettings, ApgdT, ApgdTargetedSettings
from attacks.engines.autoattack import AutoAttack, AutoAttackSettings
from attacks.engines.pgd import Pgd, PgdSettings
from attacks.engines.square import Square, SquareSettings
from attacks.parts.ledger import Ledger, flags_of_logits
from attacks.parts.observed import Observed, nothing_observed
from bench import registry
from bench.api import Batch, ModelSource, flags
from bench.evaluation.doubts import beats_gradients
from tests.attacks.conftest import Network, a_batch
from tests.attacks.test_engines import ignore

PGD = Pgd(PgdSettings(steps=10, restarts=1))
CE = Pgd(PgdSettings(steps=10, restarts=1, loss="ce"))


def raised(engine: Any, network: Any, forward: Any, **batch: Any) -> dict[str, str]:
    """The doubts about an attack on `forward`, on images that `network` classifies."""
    examples = a_batch(network, **batch)
    result = engine.run(ModelSource("deceiver", forward), examples, ignore)
    return flags.doubtful(result.flags, len(examples.labels))


def test_an_honest_network_raises_none(network: Any) -> None:
    for engine in (PGD, CE, ApgdCe(ApgdSettings(steps=10)), Square(SquareSettings(queries=40, restarts=1))):
        assert raised(engine, network, network) == {}


def test_a_quantised_input_has_no_gradient(network: Any) -> Any:
    def quantised(images: tf.Tensor) -> tf.Tensor:
        return network(tf.round(images * 8) / 8)

    found = raised(PGD, network, quantised, epsilon=0.03)
    assert flags.ZERO_GRADIENT in found
    assert "BPDA" in found[flags.ZERO_GRADIENT]


def test_a_loss_that_never_moves(network: Any) -> Any:
    def constant(images: tf.Tensor) -> tf.Tensor:
        return 0.0 * network(images)

    assert {flags.STILL_LOSS, flags.ZERO_GRADIENT} <= set(raised(PGD, network, constant))


def test_a_noisy_forward_pass(network: Any) -> Any:
    def noisy(images: tf.Tensor) -> tf.Tensor:
        return network(images + tf.random.normal(tf.shape(images), stddev=0.05))

    assert flags.RANDOMISED in raised(PGD, network, noisy)
    rand = AutoAttack(AutoAttackSettings(version="rand", steps=5))
    assert flags.RANDOMISED in raised(rand, network, noisy)


def test_a_source_whose_last_bits_differ_from_call_to_call_or_batch_to_batch_is_not_random(network: Any) -> Any:
    def gpu(images: tf.Tensor) -> tf.Tensor:
        # Sums in another order at every call, and by the size of the batch.
        logits = network(images)
        shift = tf.random.uniform(tf.shape(logits)) + tf.cast(tf.shape(images)[0], tf.float32)
        return logits * (1 + 1e-6 * shift)

    assert flags.RANDOMISED not in raised(PGD, network, gpu)

    def by_batch(images: tf.Tensor) -> tf.Tensor:
        return network(images) + 0.01 * tf.cast(tf.shape(images)[0], tf.float32)

    class Batched(ModelSource):
        def logits(self, images: Any) -> Any:
            return by_batch(images)

    assert flags.RANDOMISED not in PGD.run(Batched("batched", by_batch), a_batch(network), ignore).flags


def test_logits_are_saturated_where_float32_loses_the_cross_entropy() -> None:
    gaps = np.array([10.0, 16.0, 17.5, 60.0], np.float32)
    logits = np.stack([gaps, 0 * gaps], axis=1)
    lost = np.float32(1) + np.exp(-gaps) == 1
    assert lost.tolist() == [False, False, True, True]
    np.testing.assert_array_equal(flags_of_logits(logits)[flags.SATURATED], lost)


def test_saturated_logits(network: Any) -> None:
    found = raised(CE, network, lambda images: 1e4 * network(images))
    assert flags.SATURATED in found
    assert flags.ZERO_GRADIENT in found
    assert flags.ZERO_GRADIENT not in raised(PGD, network, lambda images: 1e4 * network(images))


def test_probabilities_in_place_of_logits(network: Any) -> None:
    assert flags.SOFTMAX in raised(PGD, network, lambda images: tf.nn.softmax(network(images)))


def test_gradients_that_are_not_finite(network: Any) -> Any:
    def unstable(images: tf.Tensor) -> tf.Tensor:
        # The root's slope is infinite at 0, and infinite times 0 is not a number.
        nothing = tf.square(images - tf.stop_gradient(images))
        return network(images) + tf.sqrt(tf.reduce_sum(nothing, axis=[1, 2, 3]))[:, None] * tf.range(5.0)

    assert flags.NON_FINITE_GRADIENT in raised(PGD, network, unstable)


@pytest.mark.parametrize("engine", [ApgdDlr(ApgdSettings(steps=10)), ApgdT(ApgdTargetedSettings(steps=10))])
def test_with_three_classes_dlr_is_undefined_and_the_attack_says_so(engine: Any) -> None:
    network = Network(classes=3)
    examples = a_batch(network, epsilon=0.1)
    result = engine.run(ModelSource("three", network), examples, ignore)
    assert result.flags[flags.NO_DLR] == len(examples.labels)
    assert result.success.all()


def test_square_and_noise_that_beat_the_gradients_are_counted() -> None:
    gradients = [np.array([True, False, False]), np.array([True, True, False])]
    assert beats_gradients(np.array([True, True, True]), gradients) == 1
    assert beats_gradients(np.array([True, True, False]), gradients) == 0
    assert beats_gradients(np.array([True]), []) == 0


def test_square_beats_gradients_that_are_hidden(network: Any) -> Any:
    def quantised(images: tf.Tensor) -> tf.Tensor:
        return network(tf.round(images * 64) / 64)

    source, batch = ModelSource("quantised", quantised), a_batch(network, epsilon=0.02)
    blind = Square(SquareSettings(queries=300, restarts=1)).run(source, batch, ignore).success
    gradient = Pgd(PgdSettings(steps=10, restarts=1)).run(source, batch, ignore).success
    assert beats_gradients(blind, [gradient]) > 0


def test_autoattack_says_by_itself_that_its_gradients_are_hidden_and_square_won(network: Any) -> Any:
    """Square's queries are no gradients, and that it moves the loss says nothing about them."""

    def hidden(images: tf.Tensor) -> tf.Tensor:
        return tf.stop_gradient(network(images))

    batch = a_batch(network, epsilon=0.05)
    engine = AutoAttack(AutoAttackSettings(steps=5, targets=1, queries=400))
    for exact in (False, True):
        result = engine.run(ModelSource("hidden", hidden, exact=exact), batch, ignore)
        assert result.part is not None
        broken = int(np.sum(result.part == list(engine.parts).index("square")))
        assert broken > 1
        assert result.flags[flags.ZERO_GRADIENT] == len(batch.labels)
        assert result.flags[flags.SQUARE_WINS] == broken
        assert {flags.ZERO_GRADIENT, flags.SQUARE_WINS} <= set(flags.doubtful(result.flags, len(batch.labels)))


def test_square_does_not_hide_a_loss_that_no_gradient_step_moved() -> None:
    def noted(*descents: Observed) -> dict[str, int]:
        images, labels = np.zeros((2, 8, 8, 3), np.float32), np.zeros(2, int)
        ledger = Ledger(images, labels, 2 * np.eye(2, 5, dtype=np.float32), "best-margin")
        for seen in descents:
            ledger.note(np.arange(2), seen)
        return ledger.flags()

    none = nothing_observed(tf.constant(2))
    still = none._replace(seen=none.seen + 5, low=tf.ones(2), high=tf.ones(2))
    moving = none._replace(queries=none.queries + 9, low=tf.zeros(2), high=tf.ones(2))
    assert noted(still, moving) == noted(still) == {flags.STILL_LOSS: 2}
    assert noted(moving) == {}
    assert noted(none._replace(queries=none.queries + 9, low=tf.ones(2), high=tf.ones(2))) == {flags.STILL_LOSS: 2}


def probed(source: Any, batch: Any, engine: Any = PGD, work: int = 1000) -> dict[str, int]:
    """The flags that the probes raise about an attack of so many gradients per example."""
    return by_probes(source, batch, engine.run(source, batch, ignore), work)


def by_probes(source: Any, batch: Any, attacked: Any, work: int) -> dict[str, int]:
    """The flags that all built-in probes raise."""
    found: dict[str, int] = {}
    for probe in registry.probes(only_built_in=True).values():
        found |= probe.flags(source, batch, attacked, work)
    return found


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.01), ("l2", 0.05)])
def test_probes_of_an_honest_network_raise_none(
    network: Any, sources: Any, exact: bool, norm: str, epsilon: float
) -> None:
    batch = a_batch(network, norm=norm, epsilon=epsilon)
    assert not PGD.run(sources[exact], batch, ignore).success.all(), "some examples must be left to probe"
    assert probed(sources[exact], batch) == {}


def test_noise_that_beats_the_gradients_is_a_doubt(network: Any) -> Any:
    def misleading(images: tf.Tensor) -> tf.Tensor:
        # The right logits, with the gradient turned round.
        logits = network(images)
        return 2 * tf.stop_gradient(logits) - logits

    batch = a_batch(network, count=40, epsilon=0.15)
    found = probed(ModelSource("misleading", misleading), batch)
    assert flags.NOISE_WINS in flags.doubtful(found, len(batch.labels))


def test_probes_do_not_depend_on_batches_and_shards(network: Any) -> Any:
    def quantised(images: tf.Tensor) -> tf.Tensor:
        return network(tf.round(images * 4) / 4)

    source, batch = ModelSource("quantised", quantised), a_batch(network, count=30, epsilon=0.1)
    whole = probed(source, batch, work=200)
    halves = [probed(source, probes.some(batch, rows), work=200) for rows in (np.arange(11), np.arange(11, 30))]
    assert 0 < whole[flags.SURVIVES_ONE] < 30, "a small attack has only some of its examples probed"
    assert whole == {name: sum(half.get(name, 0) for half in halves) for name in whole}


def test_probes_cost_a_few_percent_of_the_attack(network: Any, source: Any) -> Any:
    class Counting(ModelSource):
        forwards = gradients = 0

        def logits(self, images: Any) -> Any:
            tf.py_function(self.count, [tf.shape(images)[0], 0], [])
            return super().logits(images)

        def gradient(self, loss: Any, images: Any, *labels: Any) -> Any:
            tf.py_function(self.count, [0, tf.shape(images)[0]], [])
            return super().gradient(loss, images, *labels)

        def count(self, forwards: Any, gradients: Any) -> None:
            Counting.forwards += int(forwards)
            Counting.gradients += int(gradients)

    engine = Pgd(PgdSettings(steps=50, restarts=4))
    batch = a_batch(network, count=40, epsilon=0.002)
    source = Counting("counting", network)
    attacked = engine.run(source, batch, ignore)
    spent = Counting.gradients + Counting.forwards / 3
    assert by_probes(source, batch, attacked, engine.work(1)) == {}
    assert Counting.gradients + Counting.forwards / 3 - spent < 0.05 * spent


def test_noise_breaks_what_stands_at_the_edge(network: Any, source: Any) -> None:
    batch = a_batch(network, count=40, epsilon=0.2)
    assert probes.noise(source, batch).any()


def test_a_source_without_any_gradient_survives_epsilon_one() -> Any:
    def flat(images: tf.Tensor) -> tf.Tensor:
        # Right about every image but a black one, and nothing that leads there.
        black = tf.cast(tf.reduce_max(images, axis=[1, 2, 3]) < 1e-3, tf.float32)
        return tf.stack([1 - black, black], axis=1)

    images = np.full((3, 8, 8, 3), 0.5, np.float32)
    batch = Batch(images, np.zeros(3, np.int32), np.zeros((3, 2), np.int32), "linf", 0.1)
    assert probes.survives_one(ModelSource("flat", flat), batch).all()


def test_every_flag_has_a_meaning() -> None:
    names = [value for name, value in vars(flags).items() if name.isupper() and isinstance(value, str)]
    assert set(names) == set(flags.MEANINGS)


def test_a_few_bad_gradients_are_no_doubt_but_one_randomised_example_is() -> None:
    assert flags.doubtful({flags.ZERO_GRADIENT: 2}, 100) == {}
    assert flags.doubtful({flags.ZERO_GRADIENT: 3}, 100) != {}
    assert flags.doubtful({flags.RANDOMISED: 1}, 100) != {}
