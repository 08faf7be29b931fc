"""Auto-PGD as AutoAttack runs it: on the cross-entropy, on the DLR loss, and on the targeted DLR loss."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from attacks.parts import descent, losses
from attacks.parts.apgd_steps import PICKS, Apgd, ApgdLoop, checkpoints
from attacks.parts.compiling import compiled
from attacks.parts.engine import BatchEngine, Fixed, Schedule, Task, Trial, drive, one_of, positive, settle
from attacks.parts.ledger import AsSource
from bench.api import Loss, flags


@dataclasses.dataclass(frozen=True)
class ApgdSettings:
    """How Auto-PGD runs; the defaults are those of AutoAttack's standard version."""

    steps: int = 100
    restarts: int = 1
    expectation: int = 1
    """Gradients averaged at every point, for a source that is random."""
    keep: AsSource = "auto"
    """The first success, as AutoAttack, or the best margin; by itself as the source is (`AsSource`)."""

    def __post_init__(self) -> None:
        positive(self, steps=1, restarts=1, expectation=1)
        one_of(self, keep=("auto", *PICKS))


@dataclasses.dataclass(frozen=True)
class ApgdTargetedSettings(ApgdSettings):
    """How targeted Auto-PGD runs."""

    targets: int = 9
    """How many classes to aim at, the strongest on the clean image first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, targets=1)


class _ApgdEngine(BatchEngine):
    loss: ClassVar[str]
    targeted: ClassVar[bool] = False
    in_all = False  # a part of AutoAttack
    version = "2"  # since 2 the best margin on other models than the defended one
    Settings = ApgdSettings
    budget: ClassVar[tuple[str, ...]] = ("steps", "restarts")

    def work(self, examples: int) -> int:
        return examples * self.settings.restarts * self.settings.steps * getattr(self.settings, "targets", 1)

    def attack(self, task: Task) -> None:
        name = self._loss_name(task)
        loss = losses.TARGETED[name] if self.targeted else descent.untargeted(losses.UNTARGETED[name])
        ranks = min(self.settings.targets, task.classes - 1) if self.targeted else 1
        numbers = [(restart, rank) for restart in range(self.settings.restarts) for rank in range(ranks)]
        for trial in task.trials(numbers):
            self._descend(task, name, loss, trial)

    def _loss_name(self, task: Task) -> str:
        if self.loss == "dlr" and task.classes < losses.DLR_CLASSES:
            task.ledger.flag(flags.NO_DLR, np.ones(len(task.labels), bool))
            return "ce"
        return self.loss

    def _descend(self, task: Task, name: str, loss: Loss, trial: Trial) -> None:
        settings, source = self.settings, task.source
        loop = ApgdLoop(source, task.ball, loss, settings.expectation, PICKS[task.ledger.keep])
        key = ("apgd", name, self.targeted, settings.expectation, task.ledger.keep, task.ball.name)
        closes = checkpoints(settings.steps)

        def block(state: Apgd, fixed: Fixed, first: int, last: int) -> Apgd:
            return compiled(source, key, loop.block, state, fixed, task.epsilon, closes, first, last)

        rows, restart = trial.rows, trial.restart
        fixed = task.fixed(rows, task.ranked(rows, trial.rank) if self.targeted else None)
        state = compiled(source, (*key, "start"), loop.start, fixed, trial.seeds, task.epsilon)
        task.ledger.spend(rows, gradients=settings.expectation)
        schedule = Schedule(settings.steps, restart, trial.progress, gradients=settings.expectation)
        state, fixed, rows = drive(task, block, state, fixed, rows, schedule)
        settle(task, state, rows, restart, fixed.targets.numpy())


class ApgdCe(_ApgdEngine):
    """Auto-PGD on the cross-entropy: AutoAttack's first part."""

    meaning = "a part of AutoAttack: gradient steps of adaptive size on the cross-entropy"
    loss = "ce"


class ApgdDlr(_ApgdEngine):
    """Auto-PGD on the difference-of-logits ratio, a loss that no rescaling of the logits can hide."""

    meaning = "gradient steps of adaptive size on the difference-of-logits ratio"
    loss = "dlr"


class ApgdT(_ApgdEngine):
    """Auto-PGD on the targeted difference-of-logits ratio towards nine classes: AutoAttack's second part."""

    meaning = "a part of AutoAttack: gradient steps of adaptive size towards each target class"
    loss = "dlr"
    targeted = True
    Settings = ApgdTargetedSettings
    budget: ClassVar[tuple[str, ...]] = ("steps", "restarts", "targets")
