"""What all engines share: one batch at a time, a ledger for each, work reported as it is done."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from attacks.parts import draws
from attacks.parts.compiling import compiled
from attacks.parts.ledger import AsSource, Keep, Ledger, joined
from bench.api import Attacked, Ball, Batch, Engine, Report, Source, UsageError, flags

BLOCK = 10
"""Steps between two looks at which examples are solved."""


class WorkProgress:
    """Reports whole units of work, `total` of them in the end, however the work is cut."""

    def __init__(self, report: Report, total: int) -> None:
        self._report, self._total, self._done = report, total, 0

    def reach(self, share: float) -> None:
        """This share of all the work, from 0 to 1, is done by now."""
        done = round(self._total * share)
        if done > self._done:
            self._report(done - self._done)
            self._done = done

    def section(self, start: float, end: float) -> WorkProgress:
        """A part of this progress, from one share to another."""
        return _Section(self, start, end)


class _Section(WorkProgress):
    def __init__(self, whole: WorkProgress, start: float, end: float) -> None:
        self._whole, self._start, self._end = whole, start, end

    def reach(self, share: float) -> None:
        self._whole.reach(self._start + (self._end - self._start) * share)


class Fixed(NamedTuple):
    """What does not change about the examples under attack."""

    origin: tf.Tensor  # B×H×W×C
    labels: tf.Tensor  # B
    targets: tf.Tensor  # B; −1 for untargeted


class Trial(NamedTuple):
    """One descent on some examples of a task."""

    rows: np.ndarray  # n, int: the examples
    seeds: np.ndarray  # n×2: all their randomness in it
    restart: int
    rank: int  # of the target, from 0; 0 for untargeted
    progress: WorkProgress


@dataclasses.dataclass(frozen=True)
class Task:
    """One batch to attack."""

    source: Source
    ball: Ball
    epsilon: np.float32
    images: np.ndarray  # B×H×W×C
    labels: np.ndarray  # B
    seeds: np.ndarray  # B×2
    logits: np.ndarray  # B×classes, of the clean images
    ledger: Ledger
    progress: WorkProgress
    drop: bool
    """Whether an example is left out of the next descents once it is misclassified."""
    stop: bool
    """Whether an example is left out of the rest of a descent as well."""

    @property
    def classes(self) -> int:
        return self.logits.shape[1]

    def rows(self) -> np.ndarray:
        """The examples still to be attacked."""
        return np.flatnonzero(~self.ledger.success) if self.drop else np.arange(len(self.labels))

    def fixed(self, rows: np.ndarray, targets: np.ndarray | None = None) -> Fixed:
        """These examples (n, int) as tensors; targets are n."""
        aims = np.full(len(rows), -1, np.int32) if targets is None else targets
        return Fixed(tf.constant(self.images[rows]), tf.constant(self.labels[rows]), tf.constant(aims))

    def trials(self, numbers: Sequence[tuple[int, ...]]) -> Iterator[Trial]:
        """One trial after the other, each on the examples still to be attacked by then, as long as there are any.

        `numbers` are each trial's restart and, if it is targeted, the rank of its target; its seeds are of these.
        """
        for place, own in enumerate(numbers):
            progress = self.progress.section(place / len(numbers), (place + 1) / len(numbers))
            rows = self.rows()
            if len(rows):
                seeds = functools.reduce(draws.fold, own, self.seeds[rows])
                yield Trial(rows, seeds, own[0], own[-1] if len(own) > 1 else 0, progress)
            progress.reach(1.0)

    def ranked(self, rows: np.ndarray, rank: int) -> np.ndarray:
        """The class in this place of the clean logits, the true class left out: 0 is the strongest other class."""
        others = np.array(self.logits[rows])
        others[np.arange(len(rows)), self.labels[rows]] = -np.inf
        return np.argsort(-others, axis=1, kind="stable")[:, rank].astype(np.int32)


def restarts(count: int) -> list[tuple[int]]:
    """So many trials without targets, for `Task.trials`."""
    return [(restart,) for restart in range(count)]


RANDOM_IMAGES = 4
"""So many images of a batch are asked about twice, to see whether the source answers the same."""
RANDOM_SHARE = 1e-4
"""By how much two answers differ, against the largest logit, before a source is called random: a GPU may sum in another
order at every call, which moves the last bits of a float32."""


class BatchEngine(Engine):
    """An engine that attacks batch by batch."""

    def keeps(self, source: Source) -> Keep:
        """Which of an example's adversarial images is kept: engines with a choice have it in their settings.

        By itself the first success where the source is the defended model, as AutoAttack has it; elsewhere the first
        success is mostly the image itself, barely changed, and hardly carries over: there the best margin.
        """
        keep: AsSource = getattr(self.settings, "keep", "best-margin")
        if keep == "auto":
            return "first-success" if source.exact else "best-margin"
        return keep

    def goes_on(self) -> bool:
        """Whether it is made to better the margin of an example that is misclassified already."""
        return True

    def needs_of_ball(self) -> set[str]:
        """What of `Ball` a norm may leave out, and this engine or a part of it cannot do without: names of methods."""
        parts = (part for part in self.parts.values() if isinstance(part, BatchEngine))
        return set[str]().union(*(part.needs_of_ball() for part in parts))

    def run(self, source: Source, batch: Batch, report: Report) -> Attacked:
        check(self, source, batch)
        progress = WorkProgress(report, self.work(len(batch.labels)))
        total = max(len(batch.labels), 1)
        ledgers = []
        for start in range(0, total, batch.batch_size):
            part = slice(start, min(start + batch.batch_size, total))
            section = progress.section(part.start / total, part.stop / total)
            task = self.task(source, batch, part, section)
            if len(task.labels):
                self.attack(task)
            ledgers.append(task.ledger)
            section.reach(1.0)
        return self.result(joined(ledgers))

    def task(self, source: Source, batch: Batch, part: slice, progress: WorkProgress) -> Task:
        """What is known of one part of the batch before the attack: the clean logits, and a ledger."""
        images, labels = batch.images[part].astype(np.float32), batch.labels[part].astype(np.int32)
        logits = forward(source, images)
        keep = self.keeps(source)
        ledger = Ledger(images, labels, logits, keep)
        if is_random(source, images[:RANDOM_IMAGES]):
            ledger.flag(flags.RANDOMISED, np.ones(len(labels), bool))
        return Task(
            source=source,
            ball=batch.ball,
            epsilon=np.float32(batch.epsilon),
            images=images,
            labels=labels,
            seeds=batch.seeds[part],
            logits=logits,
            ledger=ledger,
            progress=progress,
            drop=source.exact or keep == "first-success",
            stop=source.exact,
        )

    @abc.abstractmethod
    def attack(self, task: Task) -> None:
        """Attacks one batch, writing what it finds into the task's ledger."""

    def result(self, attacked: Attacked) -> Attacked:
        """A last word on the whole result."""
        return attacked


def forward(source: Source, images: np.ndarray) -> np.ndarray:
    """The source's logits (B×classes) of images (B×H×W×C)."""
    return compiled(source, "logits", source.logits, images).numpy()


def is_random(source: Source, images: np.ndarray) -> bool:
    """Whether a source gives other logits for the same batch (B×H×W×C) when it is asked again."""
    if not len(images):
        return False
    first, second = forward(source, images), forward(source, images)
    scale = np.abs(np.where(np.isfinite(first), first, 0.0)).max(axis=1, initial=0.0, keepdims=True)
    return not np.isclose(first, second, rtol=0.0, atol=RANDOM_SHARE * scale + 1e-37, equal_nan=True).all()


def check(engine: BatchEngine, source: Source, batch: Batch) -> None:
    """Refuses what cannot be attacked."""
    name = type(engine).__name__
    if engine.needs_gradient and not source.has_gradient:
        raise UsageError(f"{name} needs gradients and source {source.name!r} has none: use square, which needs none")
    if not batch.epsilon >= 0:
        raise UsageError(f"epsilon {batch.epsilon} is not a size: give a number that is not negative")
    if missing := sorted(what for what in engine.needs_of_ball() if not batch.ball.has(what)):
        raise UsageError(
            f"{name} cannot work in norm '{batch.norm}': its ball has no {' and no '.join(missing)} (bench.api.Ball)"
        )


def select(structure: Any, rows: np.ndarray) -> Any:
    """The given rows of every tensor in a structure."""
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), structure)


Block = Callable[[Any, Fixed, int, int], Any]
"""block(state, fixed, first, last) does the steps first..last−1. A state has `best` and `observed`."""
Driven = tuple[Any, Fixed, np.ndarray]
"""The state, the constants and the rows of the examples that went all the way."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How a descent is driven."""

    steps: int
    restart: int
    progress: WorkProgress
    gradients: int = 1  # per example and step
    queries: int = 0  # per example and step
    block: int = BLOCK


def drive(task: Task, block: Block, state: Any, fixed: Fixed, rows: np.ndarray, schedule: Schedule) -> Driven:
    """Runs a descent on the examples `rows` (n, int), putting aside those that are solved on the way.

    Gives back those that went all the way; the ledger has the others.
    """
    for first in range(0, schedule.steps, schedule.block):
        if not len(rows):
            break
        last = min(first + schedule.block, schedule.steps)
        state = block(state, fixed, first, last)
        task.ledger.spend(rows, (last - first) * schedule.gradients, (last - first) * schedule.queries)
        if task.stop:
            solved = state.best.margin.numpy() < 0
            if solved.any():
                done, left = np.flatnonzero(solved), np.flatnonzero(~solved)
                settle(task, select(state, done), rows[done], schedule.restart, fixed.targets.numpy()[done])
                state, fixed, rows = select(state, left), select(fixed, left), rows[left]
        schedule.progress.reach(last / schedule.steps)
    return state, fixed, rows


def settle(task: Task, state: Any, rows: np.ndarray, restart: int, targets: np.ndarray) -> None:
    """Enters what a descent has found into the ledger."""
    if len(rows):
        task.ledger.spend(rows, queries=state.observed.queries.numpy())
        task.ledger.offer(rows, state.best.images.numpy(), state.best.margin.numpy(), restart, targets)
        task.ledger.note(rows, state.observed)


def positive(settings: Any, **bounds: float) -> None:
    """Refuses settings below their least value: positive(self, steps=1)."""
    for name, least in bounds.items():
        value = getattr(settings, name)
        if not value >= least:
            raise UsageError(f"{name} is {value}: give at least {least}")


def one_of(settings: Any, **choices: Sequence[str]) -> None:
    """Refuses settings that are none of their choices: one_of(self, rule=("adam", "sign"))."""
    for name, known in choices.items():
        value = getattr(settings, name)
        if value not in known:
            raise UsageError(f"{name} is {value!r}: use one of {', '.join(known)}")
