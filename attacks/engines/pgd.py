"""PGD with restarts, as DeepMind's robustness evaluations run it, and its sign-gradient form."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from attacks.parts import descent, losses
from attacks.parts.compiling import compiled
from attacks.parts.engine import BatchEngine, Fixed, Schedule, Task, Trial, drive, one_of, positive, restarts, settle
from bench.api import Loss

RULES = ("auto", "adam", "sign")
SCHEDULES = ("auto", "drops", "cosine", "linear")
STRONGEST = {"adam": "drops", "sign": "cosine"}
"""The schedule with which each step rule breaks most (docs/performance.md, step rules)."""


@dataclasses.dataclass(frozen=True)
class PgdSettings:
    """How PGD runs. Its step rule is open in the paper; the defaults are those of DeepMind's public evaluation code."""

    steps: int = 100
    restarts: int = 10
    rule: Literal["auto", "adam", "sign"] = "auto"
    """Adam on the raw gradient, or the steepest direction of the norm (in L-inf the sign of the gradient, in L2 the
    gradient over its length); by itself the stronger of the two, which is Adam in L-inf and the other in L2."""
    loss: Literal["margin", "ce", "dlr"] = "margin"
    learning_rate: float = 0.1
    """Adam's rate, in units of a pixel value."""
    step_size: float = 2.0
    """The first step of the sign rule, in units of epsilon: across the whole ball, as Auto-PGD's."""
    schedule: Literal["auto", "drops", "cosine", "linear"] = "auto"
    """How the rate falls: by `decay` twice, as DeepMind's code has it; or down to 0 along half a cosine, or a line. By
    itself the strongest of them with the step rule."""
    decay: float = 0.1
    """What `drops` multiplies the rate by after half, and again after three quarters of the steps."""
    candidates: Literal["step", "restart"] = "step"
    """What the best margin is chosen from: all iterates, or only the last iterate of every restart."""

    def __post_init__(self) -> None:
        positive(self, steps=1, restarts=1, learning_rate=0, step_size=0, decay=0)
        one_of(self, rule=RULES, schedule=SCHEDULES, loss=tuple(losses.UNTARGETED), candidates=("step", "restart"))


def rates(settings: Any, rule: str, epsilon: float) -> np.ndarray:
    """The rate of every step."""
    first = settings.learning_rate if rule == "adam" else settings.step_size * epsilon
    step = np.arange(settings.steps)
    schedule = STRONGEST[rule] if settings.schedule == "auto" else settings.schedule
    if schedule == "drops":
        drops = (2 * step >= settings.steps).astype(int) + (4 * step >= 3 * settings.steps)
        return (first * settings.decay**drops).astype(np.float32)
    share = step / settings.steps
    left = (1 + np.cos(np.pi * share)) / 2 if schedule == "cosine" else 1 - share
    return (first * left).astype(np.float32)


def descend(
    task: Task, settings: Any, loss: Loss, trial: Trial, targets: np.ndarray | None = None, reach: float = 1.0
) -> None:
    """One trial towards `targets` (one per example of it) or any class.

    It starts from a random point at most `reach` × epsilon away from each image.
    """
    source, ball = task.source, task.ball
    name = ball.rule if settings.rule == "auto" else settings.rule
    rule = descent.adam() if name == "adam" else descent.steepest(ball)
    key = ("descent", targets is None, settings.loss, name, settings.candidates, ball.name)
    steps = descent.steps(source, ball, rule, loss, every_step=settings.candidates == "step")
    rate = rates(settings, name, float(task.epsilon))

    def start(origin: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> descent.Descent:
        return descent.begin(rule, ball.random_start(origin, seeds, epsilon))

    def block(state: descent.Descent, fixed: Fixed, first: int, last: int) -> descent.Descent:
        return compiled(source, key, steps, state, fixed, task.epsilon, rate, first, last)

    fixed, restart = task.fixed(trial.rows, targets), trial.restart
    state = compiled(source, (*key, "start"), start, fixed.origin, trial.seeds, np.float32(reach) * task.epsilon)
    schedule = Schedule(settings.steps, restart, trial.progress)
    state, fixed, rows = drive(task, block, state, fixed, trial.rows, schedule)
    if len(rows):
        judge = descent.finish(source)
        best = compiled(source, "finish", judge, state.best, state.images, fixed.labels)
        task.ledger.spend(rows, queries=1)
        settle(task, state._replace(best=best), rows, restart, fixed.targets.numpy())


class Pgd(BatchEngine):
    """Projected gradient descent on the margin, with restarts; keeps the best margin."""

    Settings = PgdSettings
    budget: ClassVar[tuple[str, ...]] = ("steps", "restarts")
    meaning = "projected gradient descent: many small steps along the source's gradient, from several random starts"
    place = 30
    version = "2"  # since 2 the steepest direction has steps that fall along a cosine, from two epsilons on
    reach: ClassVar[float] = 1.0  # how far from the image a restart may start, in units of epsilon

    def work(self, examples: int) -> int:
        return examples * self.settings.restarts * self.settings.steps

    def attack(self, task: Task) -> None:
        settings = self.settings
        loss = descent.untargeted(losses.UNTARGETED[settings.loss])
        for trial in task.trials(restarts(settings.restarts)):
            descend(task, settings, loss, trial, reach=self.reach)
