"""FAB, the fast adaptive boundary attack (Croce and Hein, 2020): looks for the smallest perturbation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from attacks.parts import losses
from attacks.parts.compiling import compiled
from attacks.parts.descent import Best
from attacks.parts.engine import BatchEngine, Fixed, Schedule, Task, Trial, drive, one_of, positive, settle
from attacks.parts.ledger import AsSource
from attacks.parts.observed import Observed, nothing_observed, observe
from attacks.parts.planes import to_plane
from attacks.parts.sums import choose, image_sum, spread
from bench.api import Ball, Gradient, Source


@dataclasses.dataclass(frozen=True)
class FabSettings:
    """How FAB runs; the defaults are those of AutoAttack's standard version."""

    steps: int = 100
    restarts: int = 1
    targets: int = 9
    """How many classes to aim at, the strongest on the clean image first; the untargeted form aims at the nearest."""
    alpha_max: float = 0.1
    eta: float = 1.05
    beta: float = 0.9
    keep: AsSource = "auto"
    """The smallest perturbation that succeeds, as AutoAttack, or the best margin inside the ball; by itself as the
    source is (`AsSource`)."""

    def __post_init__(self) -> None:
        positive(self, steps=1, restarts=1, targets=1, alpha_max=0, eta=0, beta=0)
        one_of(self, keep=("auto", "first-success", "best-margin"))


class Fab(NamedTuple):
    """Where FAB stands."""

    images: tf.Tensor  # B×H×W×C
    best: Best
    score: tf.Tensor  # B: what the best image was chosen by, its size or its margin
    observed: Observed


class FabLoop(NamedTuple):
    """FAB put together."""

    source: Source
    ball: Ball
    settings: FabSettings
    by_size: bool  # of several adversarial images keep the smallest perturbation, else the best margin
    nearest: bool  # aim at the class whose plane is nearest, else at the targets given

    def start(self, fixed: Fixed, seeds: tf.Tensor, reach: tf.Tensor) -> Fab:
        """From the image itself, or a random point at half of `reach` (B) from it. Seeds are B×2."""
        drawn = self.ball.surface(seeds, list(fixed.origin.shape[1:]))
        images = tf.clip_by_value(fixed.origin + 0.5 * spread(reach) * drawn, 0.0, 1.0)
        count = tf.shape(images)[0]
        infinity = tf.fill([count], float("inf"))
        return Fab(images, Best(images, infinity), infinity, nothing_observed(count))

    def block(self, state: Fab, fixed: Fixed, epsilon: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> Fab:
        """The steps first..last−1."""

        def one(step: tf.Tensor, state: Fab) -> tuple[tf.Tensor, Fab]:
            found = self._plane(state.images, fixed)
            observed, normal = observe(state.observed, found, losses.margin(found.logits, fixed.labels))
            images = self._towards(state.images, fixed.origin, found.loss, normal)
            margin = losses.margin(self.source.logits(images), fixed.labels)
            state = self._judge(state._replace(observed=observed), images, margin, fixed.origin, epsilon)
            back = fixed.origin + self.settings.beta * (images - fixed.origin)
            return step + 1, state._replace(images=choose(margin < 0, back, images))

        return tf.while_loop(lambda step, _: step < last, one, (first, state))[1]

    def _plane(self, images: tf.Tensor, fixed: Fixed) -> Gradient:
        """z_y − z_t and its gradient: the plane on which the linearised network is undecided."""
        if not self.nearest:
            return self.source.gradient(losses.targeted_margin, images, fixed.labels, fixed.targets)
        first = self._of_class(images, fixed, 1)
        classes = tf.shape(first[0].logits)[1]

        def nearer(number: tf.Tensor, found: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
            other, distance = self._of_class(images, fixed, number)
            closer = distance < found[0]
            return number + 1, (
                tf.where(closer, distance, found[0]),
                tf.where(closer, other.loss, found[1]),
                choose(closer, other.gradient, found[2]),
            )

        begin = (first[1], first[0].loss, first[0].gradient)
        found = tf.while_loop(lambda number, _: number < classes, nearer, (tf.constant(2), begin))[1]
        return Gradient(found[1], first[0].logits, found[2])

    def _of_class(self, images: tf.Tensor, fixed: Fixed, shift: int | tf.Tensor) -> tuple[Gradient, tf.Tensor]:
        def towards(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            return losses.targeted_margin(logits, labels, (labels + shift) % tf.shape(logits)[1])

        found = self.source.gradient(towards, images, fixed.labels)
        return found, tf.abs(found.loss) / (self.ball.dual(found.gradient) + 1e-12)

    def _towards(self, images: tf.Tensor, origin: tf.Tensor, value: tf.Tensor, normal: tf.Tensor) -> tf.Tensor:
        """A step past the plane: mostly from where it is, a little from the original image, which draws it closer."""
        ball, settings = self.ball, self.settings
        here = to_plane(ball, images, value, normal)
        there = to_plane(ball, origin, value + image_sum(normal * (origin - images)), normal)
        size = ball.size(here)
        alpha = tf.math.divide_no_nan(size, size + ball.size(there))
        alpha = spread(tf.clip_by_value(alpha, 0.0, settings.alpha_max))
        moved = (images + settings.eta * here) * (1.0 - alpha) + (origin + settings.eta * there) * alpha
        return tf.clip_by_value(moved, 0.0, 1.0)

    def _judge(self, state: Fab, images: tf.Tensor, margin: tf.Tensor, origin: tf.Tensor, epsilon: tf.Tensor) -> Fab:
        size = self.ball.size(images - origin)
        score = size if self.by_size else margin
        gained = (margin < 0) & (size <= epsilon) & (score < state.score)
        best = Best(choose(gained, images, state.best.images), tf.where(gained, margin, state.best.margin))
        return state._replace(best=best, score=tf.where(gained, score, state.score))


class _FabEngine(BatchEngine):
    targeted: ClassVar[bool]
    in_all = False  # a part of AutoAttack
    version = "2"  # since 2 the best margin on other models than the defended one
    Settings = FabSettings
    budget: ClassVar[tuple[str, ...]] = ("steps", "restarts", "targets")

    def work(self, examples: int) -> int:
        return examples * self.settings.restarts * self.settings.steps * self.settings.targets

    def goes_on(self) -> bool:
        return False  # it looks for the boundary, not past it

    def needs_of_ball(self) -> set[str]:
        return {"profile"} if self.targeted else {"profile", "dual"}

    def attack(self, task: Task) -> None:
        ranks = min(self.settings.targets, task.classes - 1) if self.targeted else 1
        numbers = [(restart, rank) for restart in range(self.settings.restarts) for rank in range(ranks)]
        for trial in task.trials(numbers):
            self._descend(task, trial)

    def _descend(self, task: Task, trial: Trial) -> None:
        settings, source = self.settings, task.source
        loop = FabLoop(source, task.ball, settings, task.ledger.keep == "first-success", not self.targeted)
        key = ("fab", self.targeted, dataclasses.astuple(settings)[3:], task.ledger.keep, task.ball.name)
        block = _block(task, key, loop)
        rows, restart = trial.rows, trial.restart
        fixed = task.fixed(rows, task.ranked(rows, trial.rank) if self.targeted else None)
        reach = np.full(len(rows), task.epsilon if restart else 0.0, np.float32)
        state = compiled(source, (*key, "start"), loop.start, fixed, trial.seeds, reach)
        gradients = 1 if self.targeted else task.classes - 1
        schedule = Schedule(settings.steps, restart, trial.progress, gradients=gradients, queries=1)
        state, fixed, rows = drive(task, block, state, fixed, rows, schedule)
        settle(task, state, rows, restart, fixed.targets.numpy())


def _block(task: Task, key: tuple[object, ...], loop: FabLoop) -> Callable[..., Fab]:
    def block(state: Fab, fixed: Fixed, first: int, last: int) -> Fab:
        return compiled(task.source, key, loop.block, state, fixed, task.epsilon, first, last)

    return block


class FabT(_FabEngine):
    """FAB towards nine classes in turn, looking for the smallest perturbation: AutoAttack's third part."""

    meaning = "a part of AutoAttack: looks for the smallest perturbation towards each target class"
    targeted = True


class FabUntargeted(_FabEngine):
    """FAB towards whichever class is nearest at every step, at the cost of a gradient for every class."""

    meaning = "looks for the smallest perturbation that crosses the boundary"
    targeted = False
