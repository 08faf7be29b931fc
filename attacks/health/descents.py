"""Descents on a source, and what must not beat them: more steps, one step, noise, Square, a larger ball."""

from __future__ import annotations

import copy
import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from attacks.engines.pgd import Pgd, PgdSettings
from attacks.engines.square import Square, SquareSettings
from attacks.health.examples import counted, some
from attacks.norms import Linf
from attacks.parts import descent, draws, losses
from attacks.parts.compiling import compiled
from attacks.parts.engine import Fixed, forward
from attacks.parts.ledger import clean_margin
from bench.api import Attacked, Batch, Engine, Finding, HealthBudget, Source, flags

TRIES = 20
NOISE = 1_000_003
"""Sets the seeds of noise apart from those of restarts, whose starts an attack has seen already."""
LARGER = 4.0
"""How many times epsilon the larger ball is."""
HARDLY = 1e-3
"""A loss that falls by less than this share of itself has not fallen."""


class Descended(NamedTuple):
    """What several descents and searches have broken of the examples: n, bool each."""

    once: np.ndarray
    doubled: np.ndarray
    larger: np.ndarray


def findings(
    source: Source, batch: Batch, margin: np.ndarray, budget: HealthBudget
) -> tuple[dict[str, Finding], np.ndarray]:
    """What descents on examples (N) of these clean margins show, and where the first one has ended (N×H×W×C)."""
    once = _run(Pgd(PgdSettings(steps=budget.steps, restarts=1)), source, batch)
    standing = np.flatnonzero(~once.success)
    twice = _broken(Pgd(PgdSettings(steps=2 * budget.steps, restarts=1)), source, batch, standing)
    broken = once.success | twice
    left = np.flatnonzero(~broken)
    found = {
        flags.NOT_REDUCED: counted(~once.success & not_reduced(once.margin, margin)),
        flags.UNFINISHED: counted(twice),
        flags.ONE_STEP_WINS: counted(masked(one_step(source, some(batch, standing)), standing, len(margin))),
        flags.NOISE_WINS: counted(masked(noise(source, some(batch, left)), left, len(margin))),
        **_in_larger_balls(source, batch, broken, budget),
    }
    if budget.queries and batch.ball.has("square_moves"):
        square = Square(SquareSettings(queries=budget.queries, restarts=1))
        found[flags.SQUARE_WINS] = counted(_broken(square, source, batch, left))
    return found, once.images


def not_reduced(margin: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """Where an attack did not bring the margin down from what it was (N each)."""
    return np.asarray(margin >= clean - HARDLY * np.abs(clean))


def masked(found: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """A mask (count, bool) of what was found (n, bool) among the examples `rows` (n, int)."""
    mask = np.zeros(count, bool)
    mask[rows[found]] = True
    return mask


def _in_larger_balls(source: Source, batch: Batch, broken: np.ndarray, budget: HealthBudget) -> dict[str, Finding]:
    """Whether four times epsilon breaks more than epsilon did (N, bool), and epsilon 1.0 everything."""
    descend = _FromTheImage(PgdSettings(steps=budget.steps, restarts=1))
    larger = _run(descend, source, dataclasses.replace(batch, epsilon=LARGER * batch.epsilon)).success
    stuck = broken & ~larger
    if (~broken).any() and not (larger & ~broken).any():
        stuck |= ~larger
    left = np.flatnonzero(~larger & ~broken)  # the largest ball holds every other
    survives = survives_one(source, some(batch, left), budget.steps)
    return {
        flags.DOES_NOT_FALL: counted(stuck),
        flags.SURVIVES_ONE: counted(masked(survives, left, len(broken))),
    }


class _FromTheImage(Pgd):
    """PGD from the image itself: a random start in so large a ball would be noise, broken without any gradient."""

    reach = 0.0


def survives_one(source: Source, batch: Batch, steps: int) -> np.ndarray:
    """Which examples are still classified right at epsilon 1.0 in L-inf, where any image may be shown: N, bool."""
    everything = dataclasses.replace(batch, norm=Linf.name, epsilon=1.0)
    return ~_run(_FromTheImage(PgdSettings(steps=steps, restarts=1)), source, everything).success


def one_step(source: Source, batch: Batch) -> np.ndarray:
    """Which examples one step along the gradient, as long as the ball is wide, deceives the source about: N, bool."""
    ball = batch.ball

    def stepped(images: tf.Tensor, labels: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        gradient = source.gradient(losses.ce, images, labels).gradient
        finite = tf.where(tf.math.is_finite(gradient), gradient, 0.0)
        return ball.project(images - epsilon * ball.steepest(finite), images, epsilon)

    if not len(batch.labels):
        return np.zeros(0, bool)
    key = ("health", "one step", ball.name)
    images = compiled(source, key, stepped, batch.images, batch.labels, np.float32(batch.epsilon)).numpy()
    return clean_margin(forward(source, images), batch.labels) < 0


def noise(source: Source, batch: Batch, tries: int = TRIES) -> np.ndarray:
    """Which examples some random point on the surface of their ball deceives the source about: N, bool."""
    ball = batch.ball

    def perturbed(images: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        drawn = images + epsilon * ball.surface(seeds, list(images.shape[1:]))
        return ball.project(drawn, images, epsilon)

    broken = np.zeros(len(batch.labels), bool)
    for number in range(tries if len(broken) else 0):
        seeds = draws.fold(draws.fold(batch.seeds, NOISE), number)
        epsilon = np.float32(batch.epsilon)
        noisy = compiled(source, ("health", "noise", ball.name), perturbed, batch.images, seeds, epsilon).numpy()
        broken |= clean_margin(forward(source, noisy), batch.labels) < 0
    return broken


def continued(source: Source, batch: Batch, images: np.ndarray, steps: int) -> np.ndarray:
    """Which examples some more steps from these images (N×H×W×C) deceive the source about: N, bool."""
    if not len(images):
        return np.zeros(0, bool)
    ball, rule = batch.ball, descent.steepest(batch.ball)
    rates = (batch.epsilon / 4 * (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2).astype(np.float32)
    go = descent.steps(source, ball, rule, descent.untargeted(losses.margin), every_step=True)
    fixed = Fixed(tf.constant(batch.images), tf.constant(batch.labels), tf.fill([len(images)], -1))
    state = descent.begin(rule, tf.constant(images))
    key = ("health", "continued", ball.name)
    state = compiled(source, key, go, state, fixed, np.float32(batch.epsilon), rates, 0, steps)
    best = compiled(source, "finish", descent.finish(source), state.best, state.images, fixed.labels)
    return np.asarray(best.margin.numpy() < 0)


def _run(engine: Engine, source: Source, batch: Batch) -> Attacked:
    stopping = copy.copy(source)  # shares what is compiled
    stopping.exact = True  # so that an example is left alone as soon as it is broken
    return engine.run(stopping, batch, lambda _: None)


def _broken(engine: Engine, source: Source, batch: Batch, rows: np.ndarray) -> np.ndarray:
    """Which of all examples (N, bool) an attack on some of them (n, int) breaks."""
    if not len(rows):
        return np.zeros(len(batch.labels), bool)
    return masked(_run(engine, source, some(batch, rows)).success, rows, len(batch.labels))
