"""On a linear classifier the smallest adversarial perturbation is known: engines find it just outside, not inside."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from attacks.engines.apgd import ApgdCe, ApgdDlr, ApgdT
from attacks.engines.autoattack import AutoAttack, AutoAttackSettings
from attacks.engines.fab import FabSettings, FabT, FabUntargeted
from attacks.engines.multi_targeted import MultiTargeted, MultiTargetedSettings
from attacks.engines.pgd import Pgd, PgdSettings
from attacks.parts import planes
from bench import norms
from bench.api import Batch, Engine, ModelSource
from tests.attacks.test_engines import ignore

CLASSES, SHAPE = 5, (6, 6, 3)
ENGINES: dict[str, Engine] = {
    "pgd": Pgd(PgdSettings(restarts=2)),
    "pgd-adam": Pgd(PgdSettings(restarts=2, rule="adam")),
    "pgd-sign": Pgd(PgdSettings(restarts=2, rule="sign")),
    "mt": MultiTargeted(MultiTargetedSettings(steps=100, restarts=1)),
    "apgd-ce": ApgdCe(),
    "apgd-dlr": ApgdDlr(),
    "apgd-t": ApgdT(),
    "fab-t": FabT(),
    "fab": FabUntargeted(FabSettings(restarts=1)),
    "aa": AutoAttack(AutoAttackSettings(queries=30)),
}


class Linear:
    """z = images · weights + offset, and the exact distance of an image to the nearest other class."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.weights = generator.normal(size=(np.prod(SHAPE), CLASSES)).astype(np.float32)
        self.offset = generator.normal(size=CLASSES).astype(np.float32)
        # Far from the edges of [0,1], which have no part in the closed forms.
        self.images = generator.uniform(0.45, 0.55, size=(6, *SHAPE)).astype(np.float32)
        self.logits = self.images.reshape(6, -1).astype(float) @ self.weights + self.offset
        self.labels = self.logits.argmax(axis=1).astype(np.int32)
        self.source = ModelSource("linear", self)

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        return tf.reshape(images, [-1, self.weights.shape[0]]) @ self.weights + self.offset

    def radius(self, norm: str) -> np.ndarray:
        """(z_y − z_k)/‖w_y − w_k‖ in the dual norm, for the nearest class k: L1 for L-inf, L2 for L2."""
        order = {"linf": 1, "l2": 2}[norm]
        radii = []
        for logits, label in zip(self.logits, self.labels, strict=True):
            others = [k for k in range(CLASSES) if k != label]
            difference = self.weights[:, [label]].astype(float) - self.weights[:, others]
            radii.append(min((logits[label] - logits[others]) / np.linalg.norm(difference, ord=order, axis=0)))
        return np.array(radii)


LINEAR = Linear()
MANY_TARGETS = ("aa", "apgd-t", "fab-t", "mt")  # engines that run once per class


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in MANY_TARGETS else []) for name in ENGINES]
)
def test_found_just_outside_the_smallest_radius_and_never_inside(name: str, norm: str) -> None:
    if (name, norm) == ("pgd-adam", "l2"):
        pytest.skip("Adam is weak in L2, which is why PGD does not choose it there")
    radii = LINEAR.radius(norm)
    assert (radii < 0.4).all(), "the box must not matter"
    for row, radius in enumerate(radii):
        for factor, expected in ((1.02, True), (0.98, False)):
            one = slice(row, row + 1)
            seeds = np.array([[row, 7]], np.int32)
            batch = Batch(LINEAR.images[one], LINEAR.labels[one], seeds, norm, float(factor * radius))
            assert ENGINES[name].run(LINEAR.source, batch, ignore).success[0] == expected, (factor, radius)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_way_to_a_plane_is_the_shortest_one_in_the_box(norm: str) -> None:
    """Against bisection on the size: for a given size the most that can be gained is known value by value."""
    ball = norms.named(norm).ball()
    generator = np.random.default_rng(1)
    images = generator.uniform(size=(8, *SHAPE)).astype(np.float32)
    normal = generator.normal(size=images.shape).astype(np.float32)
    reachable = np.where(normal < 0, 1 - images, images)  # towards lower values
    most = (np.abs(normal) * reachable).sum(axis=(1, 2, 3))
    value = (most * generator.uniform(0.05, 0.95, size=8)).astype(np.float32)
    way = planes.to_plane(ball, tf.constant(images), tf.constant(value), tf.constant(normal)).numpy()
    assert ((images + way) >= -1e-6).all()
    assert ((images + way) <= 1 + 1e-6).all()
    np.testing.assert_allclose(value + (normal * way).sum(axis=(1, 2, 3)), 0, atol=1e-3)
    for row in range(8):
        weight, room = np.abs(normal[row]).astype(float), reachable[row].astype(float)
        speed = {"linf": np.ones_like(weight), "l2": weight}[norm]
        low, high = 0.0, 1e3
        for _ in range(100):
            middle = (low + high) / 2
            gained = (weight * np.minimum(middle * speed, room)).sum()
            low, high = (middle, high) if gained < value[row] else (low, middle)
        shortest = np.minimum(high * speed, room)
        size = {"linf": shortest.max(), "l2": np.sqrt((shortest**2).sum())}[norm]
        np.testing.assert_allclose(ball.size(tf.constant(way[row : row + 1]))[0], size, rtol=1e-3)


def test_a_plane_out_of_reach_is_approached_as_far_as_the_box_goes() -> None:
    images = np.full((1, *SHAPE), 0.25, np.float32)
    normal = np.ones_like(images)
    way = planes.to_plane(
        norms.named("l2").ball(), tf.constant(images), tf.constant([1e3]), tf.constant(normal)
    ).numpy()
    np.testing.assert_allclose(way, -0.25, rtol=1e-6)
