"""AutoAttack: several attacks one after the other, each on the examples that still stand (Croce and Hein, 2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from attacks.engines.apgd import ApgdCe, ApgdDlr, ApgdSettings, ApgdT, ApgdTargetedSettings
from attacks.engines.fab import FabSettings, FabT, FabUntargeted
from attacks.engines.square import Square, SquareSettings
from attacks.parts import draws
from attacks.parts.engine import BatchEngine, Task, one_of, positive
from attacks.parts.ledger import AsSource, Ledger
from bench.api import UsageError, flags

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
    keep: AsSource = "auto"
    """The first success, as published; or the best margin of all parts, which carries over to other models far better.
    By itself the first success where the source is the defended model, and the best margin where it is not."""
    steps: int = 100
    queries: int = 5000
    targets: int = 9

    def __post_init__(self) -> None:
        positive(self, steps=1, queries=1, targets=1)
        one_of(self, version=tuple(VERSIONS), keep=("auto", "first-success", "best-margin"))
        known = VERSIONS[self.version]
        for part in self.parts:
            if part not in known:
                raise UsageError(f"part {part!r} is not in AutoAttack {self.version}: use some of {', '.join(known)}")
        object.__setattr__(self, "parts", tuple(self.parts) or known)


def engine(part: str, settings: AutoAttackSettings) -> BatchEngine:
    """One part of a version, with the settings it has there. What is kept is decided by AutoAttack's ledger."""
    steps, targets = settings.steps, settings.targets
    restarts = 5 if settings.version == "plus" else 1
    expectation = 20 if settings.version == "rand" else 1
    apgd = ApgdSettings(steps=steps, restarts=restarts, expectation=expectation)
    fab: dict[str, Any] = {"steps": steps, "targets": targets}
    parts: dict[str, BatchEngine] = {
        "apgd-ce": ApgdCe(apgd),
        "apgd-dlr": ApgdDlr(apgd),
        "apgd-t": ApgdT(ApgdTargetedSettings(steps=steps, targets=targets)),
        "fab": FabUntargeted(FabSettings(restarts=restarts, **fab)),
        "fab-t": FabT(FabSettings(**fab)),
        "square": Square(SquareSettings(queries=settings.queries, restarts=1)),
    }
    return parts[part]


class AutoAttack(BatchEngine):
    """AutoAttack (APGD-CE, APGD-T, FAB-T, Square; also its versions plus and rand): a cascade of parts."""

    Settings = AutoAttackSettings
    budget: ClassVar[tuple[str, ...]] = ("parts", "steps", "targets", "queries")
    meaning = "AutoAttack: four attacks in a row, the usual reference"
    place = 10
    version = (
        "2"  # since 2: Square's masses in L2, the best margin on other models than the defended one, `part`, queries
    )

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.parts: Mapping[str, BatchEngine] = {part: engine(part, self.settings) for part in self.settings.parts}

    def work(self, examples: int) -> int:
        return sum(part.work(examples) for part in self.parts.values())

    def attack(self, task: Task) -> None:
        total, done = self.work(1), 0
        standing = ~task.ledger.success  # a clean image that is misclassified was broken by no part
        breaker = np.full(len(task.labels), -1, np.int32)
        by_gradients = np.zeros(len(task.labels), bool)
        for number, part in enumerate(self.parts.values()):
            section = task.progress.section(done / total, (done + part.work(1)) / total)
            seeds = draws.fold(task.seeds, number)
            broken = standing & self._run(part, dataclasses.replace(task, progress=section, seeds=seeds))
            breaker[broken & (breaker < 0)] = number
            by_gradients |= broken & part.needs_gradient
            done += part.work(1)
            section.reach(1.0)
        task.ledger.part = breaker
        if any(part.needs_gradient for part in self.parts.values()):
            task.ledger.flag(flags.SQUARE_WINS, (breaker >= 0) & ~by_gradients)

    def _run(self, part: BatchEngine, task: Task) -> np.ndarray:
        """Which examples this part broke, of those it attacked (N, bool); those misclassified from the start among them."""
        # Where the best margin is kept, what only looks for the boundary has nothing to add to a success.
        if self.settings.cascade and (task.drop or not part.goes_on()):
            before = task.ledger.success
            part.attack(dataclasses.replace(task, drop=True))
            return task.ledger.success & ~before
        ledger = Ledger(task.images, task.labels, task.logits, task.ledger.keep)
        ledger.queries[:] = 0  # that of the clean image is in the other ledger
        part.attack(dataclasses.replace(task, ledger=ledger))
        task.ledger.merge(ledger)
        return ledger.success
