"""Flags and doubts: raised by models built to deceive, silent on an honest one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from attacks.engines.apgd import ApgdCe, ApgdDlr, ApgdSettings, ApgdT, ApgdTargetedSettings
from attacks.engines.autoattack import AutoAttack, AutoAttackSettings
from attacks.engines.pgd import Pgd, PgdSettings
from attacks.engines.square import Square, SquareSettings
from attacks.parts.ledger import Ledger, flags_of_logits
from attacks.parts.observed import Observed, nothing_observed
from bench.api import ModelSource, flags
from bench.evaluation.doubts import beats_gradients
from bench.store.on_sources import OnSource
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


def seen(broken: str) -> OnSource:
    """From a letter per example: b was broken, s stood, – was not shown."""
    letters = np.array(list(broken))
    return OnSource(letters != "–", letters == "b", np.full(len(letters), -1))


def test_square_and_noise_that_beat_the_gradients_are_counted() -> None:
    gradients = [seen("bss"), seen("bbs")]
    assert beats_gradients(seen("bbb"), gradients) == (1, 3)
    assert beats_gradients(seen("bbs"), gradients) == (0, 3)
    assert beats_gradients(seen("b"), []) == (0, 0)


def test_what_no_gradient_attack_was_shown_says_nothing_about_gradients() -> None:
    assert beats_gradients(seen("bbb–"), [seen("s–––"), seen("–––s")]) == (1, 1)
    assert beats_gradients(seen("bb"), [seen("––")]) == (0, 0)


def test_square_beats_gradients_that_are_hidden(network: Any) -> Any:
    def quantised(images: tf.Tensor) -> tf.Tensor:
        return network(tf.round(images * 64) / 64)

    source, batch = ModelSource("quantised", quantised), a_batch(network, epsilon=0.02)

    def result(engine: Any) -> OnSource:
        broken = engine.run(source, batch, ignore).success
        return OnSource(np.ones_like(broken), broken, np.full(len(broken), -1))

    blind = result(Square(SquareSettings(queries=300, restarts=1)))
    assert beats_gradients(blind, [result(Pgd(PgdSettings(steps=10, restarts=1)))])[0] > 0


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


def test_every_flag_has_a_meaning() -> None:
    names = [value for name, value in vars(flags).items() if name.isupper() and isinstance(value, str)]
    assert set(names) == set(flags.MEANINGS)


def test_a_few_bad_gradients_are_no_doubt_but_one_randomised_example_is() -> None:
    assert flags.doubtful({flags.ZERO_GRADIENT: 2}, 100) == {}
    assert flags.doubtful({flags.ZERO_GRADIENT: 3}, 100) != {}
    assert flags.doubtful({flags.RANDOMISED: 1}, 100) != {}
    assert flags.doubtful({flags.ZERO_GRADIENT: 1}, 8) == {}, "one example is no share of few"
    assert flags.doubtful({flags.ZERO_GRADIENT: 2}, 8) != {}
