"""Cheap attacks that a sound gradient attack must beat: random noise, and a ball as large as the whole range."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from attacks import draws, norms
from attacks.compiling import compiled
from attacks.engine import forward
from attacks.ledger import clean_margin
from attacks.pgd import Pgd, PgdSettings
from bench.api import Batch, Source


def noise(source: Source, batch: Batch, tries: int = 20) -> np.ndarray:
    """Which examples some random point on the surface of their ball deceives the source about: N, bool."""
    norm = norms.named(batch.norm)

    def perturbed(images: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        drawn = images + epsilon * norm.surface(seeds, list(images.shape[1:]))
        return norm.project(drawn, images, epsilon)

    broken = np.zeros(len(batch.labels), bool)
    for number in range(tries):
        seeds = draws.fold(batch.seeds, number)
        epsilon = np.float32(batch.epsilon)
        noisy = compiled(source, ("noise", norm.name), perturbed, batch.images, seeds, epsilon).numpy()
        broken |= clean_margin(forward(source, noisy), batch.labels) < 0
    return broken


def survives_one(source: Source, batch: Batch, steps: int = 50) -> np.ndarray:
    """Which examples are still classified right at epsilon 1.0 in L-inf, where any image may be shown: N, bool."""
    everything = dataclasses.replace(batch, norm="linf", epsilon=1.0)
    return ~Pgd(PgdSettings(steps=steps, restarts=1)).run(source, everything, lambda _: None).success
