"""BPDA's other ways back through a keyless defence, and the ensemble's even share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from attacks.engines.pgd import Pgd, PgdSettings
from attacks.parts import losses
from attacks.strategies.averages import averaged, evened, evenly_averaged
from attacks.strategies.bpda import AveragedGradient
from bench import registry, spec
from bench.api import Batch, Knowledge, ModelSource
from bench.data import datasets
from bench.models import artifacts, catalogue
from tests.attacks.conftest import Network, a_batch
from tests.attacks.test_engines import ignore


def test_an_averaged_gradient_is_the_mean_over_noisy_copies_and_the_same_every_time(network: Any) -> None:
    source = AveragedGradient("noisy", network, draws=3, deviation=0.1)
    images, labels = tf.constant(a_batch(network).images), tf.constant(a_batch(network).labels)
    found = source.gradient(losses.margin, images, labels)
    np.testing.assert_allclose(found.logits, network(images), atol=1e-5)
    np.testing.assert_allclose(found.loss, losses.margin(network(images), labels), atol=1e-5)
    noise = 0.1 * tf.random.stateless_normal([3, 1, *images.shape[1:]], (0, 1), alg="philox")
    plain = ModelSource("plain", network)
    each = [plain.gradient(losses.margin, tf.clip_by_value(images + noise[n], 0, 1), labels).gradient for n in range(3)]
    np.testing.assert_allclose(found.gradient, np.mean(each, axis=0), atol=1e-5)
    np.testing.assert_array_equal(
        found.gradient[2:3], source.gradient(losses.margin, images[2:3], labels[2:3]).gradient
    )
    assert source.exact


def test_noise_finds_the_way_where_a_step_function_hides_it(network: Any) -> Any:
    @tf.custom_gradient
    def misled(images: tf.Tensor) -> Any:
        # Right nowhere but between two levels: there the gradient of the identity, elsewhere none.
        near = tf.cast(tf.abs(images * 16 - tf.round(images * 16)) > 0.35, tf.float32)
        return tf.round(images * 16) / 16, lambda upstream: upstream * near

    def stepped(images: tf.Tensor) -> tf.Tensor:
        return network(misled(images))

    batch = a_batch(network, count=20, epsilon=0.04)
    engine = Pgd(PgdSettings(steps=20, restarts=1, rule="sign"))
    plain = engine.run(ModelSource("stepped", stepped, exact=True), batch, ignore)
    noisy = engine.run(AveragedGradient("noisy", stepped, draws=8, deviation=0.03), batch, ignore)
    assert noisy.success.sum() > plain.success.sum()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_members_margins_count_the_same_whatever_its_scale(scale: float) -> None:
    logits = tf.constant(np.random.default_rng(0).normal(size=(4, 10)), tf.float32)
    np.testing.assert_allclose(evened(scale * logits + 7), evened(logits), atol=2e-2 if scale < 1 else 1e-4)
    np.testing.assert_allclose(tf.math.reduce_std(evened(logits), axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(tf.argmax(evened(scale * logits), axis=1), tf.argmax(logits, axis=1))
    two = tf.constant([[1.0, -3.0]])
    np.testing.assert_array_equal(evened(two), two)


def test_one_confident_member_does_not_decide() -> None:
    members = [Network(seed=seed) for seed in range(3)]
    loud = [lambda images: 1000 * members[0](images), members[1], members[2]]
    batch = a_batch(members[0], count=12, epsilon=0.06)
    # Those that all three see alike: an image is broken for an attacker when most of the members are deceived.
    images, labels = tf.constant(batch.images), batch.labels

    def deceived(mean: Any) -> int:
        found = Pgd(PgdSettings(steps=20, restarts=1)).run(ModelSource("ensemble", mean(loud)), batch, ignore)
        return sum(int((np.argmax(m(found.images), axis=1) != labels).sum()) for m in members[1:])

    assert len(images) == 12
    assert deceived(evenly_averaged) > deceived(averaged)


def test_jpeg_falls_through_its_differentiable_form_where_the_identity_fails() -> None:
    """Six images that BPDA with the identity leaves standing in L2 at the laptop's budgets: hardly one does here."""
    dataset, jpeg = datasets.load("cifar10"), registry.defence("jpeg-10", {})
    made = catalogue.spec_for(spec.resolve("laptop"), dataset, "jpeg-10", jpeg, None)
    artifact = artifacts.find(made.fingerprint)
    assert artifact is not None
    classifier = made.load(artifact.weights).model
    workshop: Any = None  # nothing is trained
    known = Knowledge(jpeg, "jpeg-10", {}, classifier, dataset.shape, len(dataset.classes), workshop)
    rows, examples = [4, 8, 11, 14, 17, 20], dataset.examples(21)
    seeds = np.array([[row, 0] for row in rows], np.int32)
    batch = Batch(examples.unit()[rows], examples.labels[rows].astype(np.int32), seeds, "l2", 0.5)
    engine = Pgd(PgdSettings(steps=30, restarts=1))
    broken = {
        name: int(engine.run(registry.strategy("bpda", {}).build(name, known), batch, ignore).success.sum())
        for name in ("self", "self-smooth")
    }
    assert broken["self"] <= 2
    assert broken["self-smooth"] >= 4
