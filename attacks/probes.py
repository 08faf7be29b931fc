"""Cheap attacks that a sound gradient attack must beat: random noise, and a ball as large as the whole range.

Both ask whether the source's gradients lead anywhere, so they make sense on every source that has them, the defended
model itself (`exact`) or not: what counts is success on the source, where the attack computed, and never the defended
model. What the attack broke needs no probe: noise could not add to it, and it breaks at epsilon 1.0 as well, since that
ball holds every other. So only the examples left standing are probed.
"""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import tensorflow as tf

from attacks.engines.pgd import Pgd, PgdSettings
from attacks.norms import Linf
from attacks.parts import draws
from attacks.parts.compiling import compiled
from attacks.parts.engine import BLOCK, forward
from attacks.parts.ledger import clean_margin
from bench.api import Attacked, Batch, Probe, Source, flags

TRIES = 20
STEPS = 50
SHARE = 0.02
"""What each probe may cost, about, of the attack's own work."""


class NoiseProbe(Probe):
    """Random noise on the examples that an attack left standing; with a small attack, fewer draws per example."""

    def flags(self, source: Source, batch: Batch, attacked: Attacked, work: int) -> dict[str, int]:
        tries = int(np.clip(3 * SHARE * work, 1, TRIES))  # a forward pass is a third of a gradient
        return _counted(flags.NOISE_WINS, noise(source, some(batch, _standing(attacked)), tries))


class EpsilonOneProbe(Probe):
    """PGD at epsilon 1.0 on what an attack left standing; with a small attack, on fewer examples, as their seeds say."""

    def flags(self, source: Source, batch: Batch, attacked: Attacked, work: int) -> dict[str, int]:
        standing = _standing(attacked)
        # A source with gradients that lead somewhere is broken within one block of steps; only one that is not costs more.
        chance = SHARE * work / BLOCK
        lots = draws.fold(batch.seeds[standing], TRIES).view(np.uint32)[:, 0] / 2.0**32
        return _counted(flags.SURVIVES_ONE, survives_one(source, some(batch, standing[lots < chance])))


def _standing(attacked: Attacked) -> np.ndarray:
    """The examples that an attack did not break on its source."""
    return np.flatnonzero(~np.asarray(attacked.success, bool))


def _counted(flag: str, mask: np.ndarray) -> dict[str, int]:
    """A flag for the examples of a mask (n, bool); none if there are none."""
    count = int(mask.sum())
    return {flag: count} if count else {}


def some(batch: Batch, rows: np.ndarray) -> Batch:
    """The given examples (n, int) of a batch."""
    return dataclasses.replace(batch, images=batch.images[rows], labels=batch.labels[rows], seeds=batch.seeds[rows])


def noise(source: Source, batch: Batch, tries: int = TRIES) -> np.ndarray:
    """Which examples some random point on the surface of their ball deceives the source about: N, bool."""
    ball = batch.ball

    def perturbed(images: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        drawn = images + epsilon * ball.surface(seeds, list(images.shape[1:]))
        return ball.project(drawn, images, epsilon)

    broken = np.zeros(len(batch.labels), bool)
    for number in range(tries if len(broken) else 0):
        seeds = draws.fold(batch.seeds, number)
        epsilon = np.float32(batch.epsilon)
        noisy = compiled(source, ("noise", ball.name), perturbed, batch.images, seeds, epsilon).numpy()
        broken |= clean_margin(forward(source, noisy), batch.labels) < 0
    return broken


class _FromTheImage(Pgd):
    """PGD from the image itself: a random start in so large a ball would be noise, broken without any gradient."""

    reach = 0.0


def survives_one(source: Source, batch: Batch, steps: int = STEPS) -> np.ndarray:
    """Which examples are still classified right at epsilon 1.0 in L-inf, where any image may be shown: N, bool."""
    stopping = copy.copy(source)  # shares what is compiled
    stopping.exact = True  # so that an example is left alone as soon as it is broken
    everything = dataclasses.replace(batch, norm=Linf.name, epsilon=1.0)
    return ~_FromTheImage(PgdSettings(steps=steps, restarts=1)).run(stopping, everything, lambda _: None).success
