"""MultiTargeted: PGD towards every other class in turn (Gowal et al., 2019)."""

from __future__ import annotations

import dataclasses
from typing import Literal

from attacks.engines.pgd import RULES, descend
from attacks.parts import draws, losses
from attacks.parts.engine import BatchEngine, Task, one_of, positive


@dataclasses.dataclass(frozen=True)
class MultiTargetedSettings:
    """How MultiTargeted runs; step rule and schedule are those of PGD."""

    steps: int = 200
    restarts: int = 20
    restarts_per: Literal["target", "example"] = "target"
    """Whether the restarts are run for every target, or shared out among the targets. Open in the paper."""
    targets: int = 9
    """How many classes to aim at, the strongest on the clean image first."""
    rule: Literal["auto", "adam", "sign"] = "auto"
    loss: Literal["margin", "ce", "dlr"] = "margin"
    learning_rate: float = 0.1
    step_size: float = 0.5
    decay: float = 0.1
    candidates: Literal["step", "restart"] = "step"

    def __post_init__(self) -> None:
        positive(self, steps=1, restarts=1, targets=1, learning_rate=0, step_size=0, decay=0)
        one_of(self, restarts_per=("target", "example"), rule=RULES, loss=tuple(losses.TARGETED))
        one_of(self, candidates=("step", "restart"))


class MultiTargeted(BatchEngine):
    """PGD on z_y − z_t towards each other class t, with restarts; keeps the best margin."""

    Settings = MultiTargetedSettings
    meaning = "multi-targeted: gradient steps towards every other class in turn"
    place = 20

    def work(self, examples: int) -> int:
        settings = self.settings
        per = settings.targets if settings.restarts_per == "target" else 1
        return examples * settings.restarts * settings.steps * per

    def attack(self, task: Task) -> None:
        loss = losses.TARGETED[self.settings.loss]
        runs = self._runs(min(self.settings.targets, task.classes - 1))
        for number, (restart, rank) in enumerate(runs):
            progress = task.progress.section(number / len(runs), (number + 1) / len(runs))
            rows = task.rows()
            if len(rows):
                seeds = draws.fold(draws.fold(task.seeds[rows], restart), rank)
                descend(task, self.settings, loss, rows, task.ranked(rows, rank), restart, seeds, progress)
            progress.reach(1.0)

    def _runs(self, targets: int) -> list[tuple[int, int]]:
        """The restart and the target's rank of every descent."""
        if self.settings.restarts_per == "target":
            return [(restart, rank) for restart in range(self.settings.restarts) for rank in range(targets)]
        return [(restart, restart % targets) for restart in range(self.settings.restarts)]
