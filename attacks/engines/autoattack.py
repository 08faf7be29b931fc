"""AutoAttack: several attacks one after the other, each on the examples that still stand (Croce and Hein, 2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from attacks.engines.apgd import ApgdCe, ApgdDlr, ApgdSettings, ApgdT, ApgdTargetedSettings
from attacks.engines.fab import FabSettings, FabT, FabUntargeted
from attacks.engines.square import Square, SquareSettings
from attacks.parts import draws
from attacks.parts.engine import BatchEngine, Task, one_of, positive
from attacks.parts.ledger import Keep, Ledger
from bench.api import UsageError

VERSIONS: dict[str, tuple[str, ...]] = {
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "plus": ("apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"),
    "rand": ("apgd-ce", "apgd-dlr"),
}


@dataclasses.dataclass(frozen=True)
class AutoAttackSettings:
    """How AutoAttack runs; the defaults are its standard version."""

    version: Literal["standard", "plus", "rand"] = "standard"
    parts: tuple[str, ...] = ()
    """Only these parts of the version, in this order; none means all of them. A result counts parts by their place here."""
    cascade: bool = True
    """Each part attacks what the parts before it left standing. Otherwise every part attacks every example."""
    keep: Keep = "first-success"
    """The first success, which is the protocol; or the best margin of all parts, which transfers better."""
    steps: int = 100
    queries: int = 5000
    targets: int = 9

    def __post_init__(self) -> None:
        positive(self, steps=1, queries=1, targets=1)
        one_of(self, version=tuple(VERSIONS), keep=("first-success", "best-margin"))
        known = VERSIONS[self.version]
        for part in self.parts:
            if part not in known:
                raise UsageError(f"part {part!r} is not in AutoAttack {self.version}: use some of {', '.join(known)}")
        object.__setattr__(self, "parts", tuple(self.parts) or known)


def engine(part: str, settings: AutoAttackSettings) -> BatchEngine:
    """One part of a version, with the settings it has there."""
    steps, targets, keep = settings.steps, settings.targets, settings.keep
    restarts = 5 if settings.version == "plus" else 1
    expectation = 20 if settings.version == "rand" else 1
    apgd = ApgdSettings(steps=steps, restarts=restarts, expectation=expectation, keep=keep)
    fab: dict[str, Any] = {"steps": steps, "targets": targets, "keep": keep}
    parts: dict[str, BatchEngine] = {
        "apgd-ce": ApgdCe(apgd),
        "apgd-dlr": ApgdDlr(apgd),
        "apgd-t": ApgdT(ApgdTargetedSettings(steps=steps, targets=targets, keep=keep)),
        "fab": FabUntargeted(FabSettings(restarts=restarts, **fab)),
        "fab-t": FabT(FabSettings(**fab)),
        "square": Square(SquareSettings(queries=settings.queries, restarts=1, keep=keep)),
    }
    return parts[part]


class AutoAttack(BatchEngine):
    """AutoAttack (APGD-CE, APGD-T, FAB-T, Square; also its versions plus and rand): a cascade of parts."""

    Settings = AutoAttackSettings
    meaning = "AutoAttack: four attacks in a row, the usual reference"
    place = 10

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.parts: Mapping[str, BatchEngine] = {part: engine(part, self.settings) for part in self.settings.parts}

    def work(self, examples: int) -> int:
        return sum(part.work(examples) for part in self.parts.values())

    def attack(self, task: Task) -> None:
        total, done = self.work(1), 0
        breaker = np.full(len(task.labels), -1, np.int32)
        for number, part in enumerate(self.parts.values()):
            section = task.progress.section(done / total, (done + part.work(1)) / total)
            before = task.ledger.margin.copy()
            self._run(part, dataclasses.replace(task, progress=section, seeds=draws.fold(task.seeds, number)))
            breaker[task.ledger.margin != before] = number
            done += part.work(1)
            section.reach(1.0)
        task.ledger.part = breaker

    def _run(self, part: BatchEngine, task: Task) -> None:
        if self.settings.cascade:
            part.attack(task)
            return
        ledger = Ledger(task.images, task.labels, task.logits, self.keep)
        part.attack(dataclasses.replace(task, ledger=ledger))
        task.ledger.merge(ledger)
