"""What an evaluation would take, without running it: what is not stored yet, counted, and timed on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy.engine import Engine as Database

from bench import order
from bench.api import UsageError
from bench.data import datasets
from bench.data.datasets import Dataset
from bench.evaluation import contest, estimate
from bench.evaluation.calibration import Calibration
from bench.evaluation.estimate import Count, ExpectedAttack, Line, Training
from bench.evaluation.session import Planned, Request
from bench.store import queries
from bench.store.schema import ALL, SURVIVORS
from bench.support.progress import Say

ALL_TRAINING_IMAGES = 50_000
"""Of CIFAR-10, whether or not they are here."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What is left of the attacks on one defence, and what they and the training of its models take."""

    defence: str
    lines: Sequence[Line]
    training: Training
    steps: Mapping[str, Sequence[ExpectedAttack]]
    """By norm: the attacks in the order of a run on survivors, and what is expected of them on all examples."""
    measured: bool
    """Whether that order was measured for this defence in every norm."""
    stand_ins: Mapping[str, str]
    """Networks that were timed by cheaper ones, and by which."""

    @property
    def cells(self) -> int:
        return sum(line.cells for line in self.lines)

    @property
    def count(self) -> Count:
        return sum((line.count for line in self.lines), Count())

    @property
    def seconds(self) -> float:
        return sum(line.seconds for line in self.lines)

    @property
    def by_scope(self) -> dict[str, float]:
        """Seconds of a run from nothing, by its scope: at most on all examples, and as expected on survivors."""
        steps = [step for steps in self.steps.values() for step in steps]
        return {ALL: sum(step.seconds_on_all for step in steps), SURVIVORS: sum(step.seconds for step in steps)}


def forecasts(request: Request, plans: Sequence[Planned], database: Database | None, say: Say) -> Iterator[Forecast]:
    """A forecast per defence. Without a database nothing is stored yet."""
    spec, images = request.spec, datasets.load(request.spec.dataset)
    total = spec.examples * len(spec.norms)
    for one in plans:
        name, defence = spec.defence(one.defence)
        done = {} if database is None else _stored(request, one, database, say)
        left = {pair.name: total - done.get(pair.name, 0) for pair in one.pairs}
        calibration = Calibration(spec, images, name, defence, say, one.brought.network if one.brought else None)
        lines = estimate.lines(one.pairs, left, len(spec.norms), calibration)
        training = estimate.training(
            spec,
            name,
            one.pairs,
            _training_images(images),
            calibration,
            one.brought is None and request.weights is None,
        )
        steps = {norm: estimate.steps(name, norm, one.pairs, spec.examples, calibration) for norm in spec.norms}
        measured = all(order.rows(name, norm) for norm in spec.norms)
        yield Forecast(one.defence, lines, training, steps, measured, calibration.stand_ins)


def _training_images(images: Dataset) -> int:
    if images.name == "cifar10":
        return ALL_TRAINING_IMAGES
    try:
        return len(images.training())
    except UsageError:
        return 0


def _stored(request: Request, one: Planned, database: Database, say: Say) -> dict[str, int]:
    """How many examples per pair are stored already, over all norms; none where the defended model is not there yet."""
    try:
        ready = contest.prepare(
            request.spec, one.defence, request.vault, request.weights, False, say, brought=one.brought
        )
    except UsageError:
        return {}
    boards = [ready.board_row(norm)["fingerprint"] for norm in request.spec.norms]
    done = {}
    for pair in one.pairs:
        attack, source = ready.attack_row(pair)["fingerprint"], ready.source_row(pair)["fingerprint"]
        done[pair.name] = sum(queries.examples_done(database, board, attack, source) for board in boards)
    return done
