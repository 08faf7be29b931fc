"""Square: random search with square windows, without gradients (Andriushchenko et al., 2020)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from attacks.parts import draws, losses
from attacks.parts.compiling import compiled
from attacks.parts.descent import Best
from attacks.parts.engine import BatchEngine, Fixed, Schedule, Task, Trial, drive, one_of, positive, restarts, settle
from attacks.parts.ledger import Keep
from attacks.parts.observed import Observed, nothing_observed
from attacks.parts.sums import choose
from bench.api import Source, SquareMoves

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""The iterations after which the window's area is halved, in an attack of 10,000."""
BLOCK = 25


@dataclasses.dataclass(frozen=True)
class SquareSettings:
    """How Square runs."""

    queries: int = 10_000
    restarts: int = 10
    p: float = 0.8
    """The share of the image's area that the first window covers."""
    rescale: bool = False
    """Whether the schedule of the windows is stretched to the number of queries. AutoAttack's is not."""
    stop: Literal["misclassified", "never"] = "misclassified"
    """Whether a restart ends when the source is deceived, as the protocol has it, or goes on to a better margin."""
    keep: Keep = "best-margin"
    """Which restart a source that is not the defended model gives: that of the best margin, or the first to succeed."""

    def __post_init__(self) -> None:
        positive(self, queries=1, restarts=1, p=0)
        one_of(self, stop=("misclassified", "never"), keep=("best-margin", "first-success"))


def shares(settings: SquareSettings) -> np.ndarray:
    """The window's share of the image's area at every iteration."""
    iteration = np.arange(1, settings.queries)  # the start is the first query
    if settings.rescale:
        iteration = iteration * 10_000 // settings.queries
    return settings.p / 2.0 ** (iteration[:, None] > np.array(HALVINGS)).sum(axis=1)


class SquareSearch(NamedTuple):
    """Where the search stands."""

    best: Best
    observed: Observed
    seeds: tf.Tensor  # B×2: of this restart


class SquareLoop(NamedTuple):
    """Square put together."""

    source: Source
    moves: SquareMoves
    stops: bool

    def start(self, fixed: Fixed, seeds: tf.Tensor, epsilon: tf.Tensor) -> SquareSearch:
        """The first images and their margins. Seeds are B×2."""
        images = self.moves.start(fixed.origin, seeds, epsilon)
        margin = losses.margin(self.source.logits(images), fixed.labels)
        count = tf.shape(images)[0]
        observed = nothing_observed(count)._replace(queries=tf.ones([count], tf.int32), low=margin, high=margin)
        return SquareSearch(Best(images, margin), observed, seeds)

    def block(
        self, state: SquareSearch, fixed: Fixed, epsilon: tf.Tensor, sides: tf.Tensor, number: tf.Tensor
    ) -> SquareSearch:
        """One query for each of the sides, with numbers drawn for the whole block, of this number, at once."""
        # Seeds are hashes, so counting up one of their words gives streams that nobody else uses.
        drawn = draws.uniform(state.seeds + tf.stack([0, number + 1]), [BLOCK, self.moves.draws()])

        def one(step: tf.Tensor, state: SquareSearch) -> tuple[tf.Tensor, SquareSearch]:
            best, observed = state.best, state.observed
            images = self.moves.propose(best.images, fixed.origin, epsilon, drawn[:, step], sides[step])
            margin = losses.margin(self.source.logits(images), fixed.labels)
            going = (best.margin >= 0) | (not self.stops)
            gained = (margin < best.margin) & going
            observed = observed._replace(
                queries=observed.queries + tf.cast(going, tf.int32),
                low=tf.minimum(observed.low, margin),
                high=tf.maximum(observed.high, margin),
            )
            best = Best(choose(gained, images, best.images), tf.where(gained, margin, best.margin))
            return step + 1, SquareSearch(best, observed, state.seeds)

        return tf.while_loop(lambda step, _: step < tf.shape(sides)[0], one, (tf.constant(0), state))[1]


class Square(BatchEngine):
    """Random search with square windows: needs the logits only, no gradients."""

    Settings = SquareSettings
    budget: ClassVar[tuple[str, ...]] = ("queries", "restarts")
    meaning = "Square: random squares, kept when they help; it needs no gradient"
    place = 40
    needs_gradient = False
    version = "2"  # since 2, in L2, the mass that two windows give stays in its channel

    def work(self, examples: int) -> int:
        return examples * self.settings.restarts * self.settings.queries

    def needs_of_ball(self) -> set[str]:
        return {"square_moves"}

    def goes_on(self) -> bool:
        return bool(self.settings.stop == "never")

    def attack(self, task: Task) -> None:
        stops = self.settings.stop == "misclassified" or task.source.exact
        loop = SquareLoop(task.source, task.ball.square_moves(task.images.shape[1:]), stops)
        task = dataclasses.replace(task, stop=stops)
        for trial in task.trials(restarts(self.settings.restarts)):
            self._search(task, loop, trial)

    def _search(self, task: Task, loop: SquareLoop, trial: Trial) -> None:
        key = ("square", loop.stops, task.ball.name)
        sides = loop.moves.sides(shares(self.settings))
        fixed, restart = task.fixed(trial.rows), trial.restart
        state = compiled(task.source, (*key, "start"), loop.start, fixed, trial.seeds, task.epsilon)

        def block(state: SquareSearch, fixed: Fixed, first: int, last: int) -> SquareSearch:
            now = sides[first:last]
            return compiled(task.source, key, loop.block, state, fixed, task.epsilon, now, first)

        schedule = Schedule(len(sides), restart, trial.progress, gradients=0, block=BLOCK)
        state, fixed, rows = drive(task, block, state, fixed, trial.rows, schedule)
        settle(task, state, rows, restart, fixed.targets.numpy())
