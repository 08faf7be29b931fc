"""MultiTargeted: PGD towards every other class in turn (Gowal et al., 2019)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from attacks.engines.pgd import PgdSettings, descend
from attacks.parts import losses
from attacks.parts.engine import BatchEngine, Task, one_of, positive


@dataclasses.dataclass(frozen=True)
class MultiTargetedSettings(PgdSettings):
    """How MultiTargeted runs; step rule and schedule are those of PGD."""

    steps: int = 200
    restarts: int = 20
    restarts_per: Literal["target", "example"] = "target"
    """Whether the restarts are run for every target, or shared out among the targets. Open in the paper."""
    targets: int = 9
    """How many classes to aim at, the strongest on the clean image first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, targets=1)
        one_of(self, restarts_per=("target", "example"))


class MultiTargeted(BatchEngine):
    """PGD on z_y − z_t towards each other class t, with restarts; keeps the best margin."""

    Settings = MultiTargetedSettings
    budget: ClassVar[tuple[str, ...]] = ("steps", "restarts", "targets")
    meaning = "multi-targeted: gradient steps towards every other class in turn"
    place = 20
    version = "2"  # with PGD's step sizes

    def work(self, examples: int) -> int:
        settings = self.settings
        per = settings.targets if settings.restarts_per == "target" else 1
        return examples * settings.restarts * settings.steps * per

    def attack(self, task: Task) -> None:
        loss = losses.TARGETED[self.settings.loss]
        for trial in task.trials(self._runs(min(self.settings.targets, task.classes - 1))):
            descend(task, self.settings, loss, trial, task.ranked(trial.rows, trial.rank))

    def _runs(self, targets: int) -> list[tuple[int, int]]:
        """The restart and the target's rank of every descent."""
        if self.settings.restarts_per == "target":
            return [(restart, rank) for restart in range(self.settings.restarts) for rank in range(targets)]
        return [(restart, restart % targets) for restart in range(self.settings.restarts)]
