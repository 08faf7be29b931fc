"""The driver of a run: plans cells, has them attacked elsewhere, has the referee judge, and stores shard by shard."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib.metadata
import json
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

import bench
from bench import plan
from bench.api import Attacked, Batch, BenchError
from bench.evaluation import checking, doubts, images, rows
from bench.evaluation.contest import Contest
from bench.evaluation.planned import PlannedBoard, PlannedCell, planned
from bench.executors import replies
from bench.executors.base import AttackTask, Executor, Limits, Outcome
from bench.executors.base import start as start_executor
from bench.models import remote
from bench.plan import Pair
from bench.store import completeness, leases, writer
from bench.store.writer import ShardResult
from bench.support import checkout, devices
from bench.support.progress import Reporter, Tracker
from bench.support.text import one_line, several_lines

FAILURES = 3  # after so many failed shards the rest of a cell is left for another run


@dataclasses.dataclass(frozen=True)
class Options:
    """What changes how a run goes, but never a number."""

    batch_size: int = 64
    shard_size: int = 50
    keep_images: bool = True
    may_train: bool = True
    command: str = ""
    debug: bool = False
    judge_rounded: bool = False
    """Whether each image is also judged as a PNG keeps it: a column of its own, `result.rounded`."""


@dataclasses.dataclass
class Summary:
    """How a run went, in cells."""

    done: int = 0
    resumed: int = 0
    kept: int = 0
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    board_ids: list[int] = dataclasses.field(default_factory=list)

    @property
    def problem(self) -> str:
        """What went wrong with the cells that failed, in one line; empty if none did."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.failed.items())

    def __str__(self) -> str:
        return f"cells: {self.done} done ({self.resumed} resumed), {self.kept} there already, {len(self.failed)} failed"


class Unusable(BenchError):
    """What an attack returned cannot be stored."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """Some examples (in their order) of a cell, by its place on its board."""

    board: PlannedBoard
    place: int
    examples: Sequence[int]

    @property
    def cell(self) -> PlannedCell:
        return self.board.cells[self.place]


class Run:
    """One call of `bench run`. Others may work on the same database meanwhile: shards are claimed before they are run."""

    def __init__(
        self,
        database: Database,
        image_folder: Path,
        options: Options,
        reporter: Reporter,
        executor: Executor | None = None,
    ) -> None:
        self.database, self._folder, self.options, self.reporter = database, image_folder, options, reporter
        self._executor = executor or start_executor("local", Limits(), reporter.say)
        self._claims = leases.Claims(database)
        self._failures: collections.Counter[str] = collections.Counter()
        self._waited = False
        self.summary = Summary()
        self._run_id = 0

    def start(self, spec: Any, order: Mapping[str, Mapping[str, Sequence[str]]] | None = None) -> None:
        """Writes down what is about to run, and with what; `order` names the cells in their order, by defence and norm."""
        versions = {name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "numpy", "sqlalchemy")}
        self._run_id = writer.start_run(
            self.database,
            {
                "command": self.options.command,
                "preset": spec.preset,
                "spec_json": json.dumps(dataclasses.asdict(spec)),
                "versions_json": json.dumps(
                    {"bench": bench.__version__, "python": platform.python_version(), **versions}
                ),
                "device": devices.describe(),
                "git_commit": checkout.git_commit(),
                "order_json": None if order is None else json.dumps(order),
            },
        )

    def execute(self, contest: Contest, pairs: Sequence[Pair]) -> list[PlannedCell]:
        """Plans and runs all cells of a contest, and returns them; a cell that fails does not stop the others."""
        boards = planned(self.database, self._run_id, contest, pairs)
        self.summary.board_ids += [board.id for board in boards]
        self._judge_clean(boards)
        self._count(boards)
        cells = [cell for board in boards for cell in board.cells]
        unchecked = checking.unchecked(self.database, cells)
        if (self._any_left(boards) or unchecked) and not self._executor.shares_files:
            remote.offer(contest.weights.parent)
        for needs_key in (False, True):
            sources = [cell for cell in unchecked if cell.needs_key is needs_key]
            if sources or self._any_left(boards, needs_key):
                executor = contest.vault.executor(self.reporter.say) if needs_key else self._executor
                self._attack(executor, boards, needs_key)
                checking.check(self.database, executor, sources, self.options, self.reporter)
        for board in boards:  # also what a run that was killed had no time for
            completeness.update(self.database, board.id)
            doubts.update(self.database, board.id)
        return cells

    def finish(self) -> None:
        writer.finish_run(self.database, self._run_id)

    def close(self) -> None:
        self._executor.close()
        with contextlib.suppress(sa.exc.SQLAlchemyError):  # a claim that cannot be given back ends by itself
            self._claims.release()

    def _judge_clean(self, boards: Sequence[PlannedBoard]) -> None:
        for board in boards:
            cell = board.cells[0]
            while not board.schedule.complete(0):
                while work := board.schedule.next([0], self.options.shard_size):
                    self._claims.renew()
                    free = self._claims.take(cell.key, work.examples)
                    board.schedule.taken(work, free)
                    if free:
                        unchanged = replies.unchanged(cell.contest.images[free])
                        self._store(Shard(board, 0, free), unchanged, 0.0, "driver", False)
                if board.schedule.waiting([0]):
                    self._wait(board)
                board.refresh(self.database)

    def _count(self, boards: Sequence[PlannedBoard]) -> None:
        """How many of the attacks are there already, and how many have begun."""
        for board in boards:
            for place, cell in enumerate(board.cells):
                if cell.pair is not None:
                    complete = board.schedule.complete(place)
                    self.summary.kept += complete
                    self.summary.resumed += bool(not complete and board.schedule.shown(place))

    def _any_left(self, boards: Sequence[PlannedBoard], needs_key: bool | None = None) -> bool:
        wanted = (False, True) if needs_key is None else (needs_key,)
        return any(
            board.schedule.left(place).any() for board in boards for key in wanted for place in board.places(key)
        )

    def _attack(self, executor: Executor, boards: Sequence[PlannedBoard], needs_key: bool) -> None:
        """Runs what is left of the cells until nothing is, but for what failed here or is done elsewhere."""
        places = {board.id: board.places(needs_key) for board in boards}
        announced = {
            cell.fingerprint for board in boards for place, cell in enumerate(board.cells)
            if board.schedule.complete(place)
        }  # fmt: skip
        with self.reporter.track("attacking", self._work_left(boards, places)) as tracker:
            while True:
                self._round(executor, boards, places, announced, tracker)
                waiting = [board for board in boards if board.schedule.waiting(places[board.id])]
                if waiting:
                    self._wait(waiting[0])
                for board in boards:
                    board.refresh(self.database)
                    self._announce(board, places[board.id], announced)
                if not waiting and not any(board.schedule.next(places[board.id], 1) for board in boards):
                    return

    def _round(
        self,
        executor: Executor,
        boards: Sequence[PlannedBoard],
        places: Mapping[int, Sequence[int]],
        announced: set[str],
        tracker: Tracker,
    ) -> None:
        """Has everything attacked that can be claimed, and what becomes ready by that."""
        todo: list[Shard] = []
        reported: collections.Counter[int] = collections.Counter()  # of what is in hand

        def take() -> AttackTask | None:
            for board in boards:
                while work := board.schedule.next(places[board.id], self.options.shard_size):
                    free = self._claims.take(board.cells[work.cell].key, work.examples)
                    board.schedule.taken(work, free)
                    if free:
                        todo.append(Shard(board, work.cell, free))
                        return self._task(len(todo) - 1, todo[-1])
            return None

        def progress(index: int, amount: int) -> None:
            reported[index] += amount
            tracker.advance(amount, todo[index].cell.name)

        for outcome in executor.run(take, progress):
            self._claims.renew()
            if outcome is None:
                continue
            shard = todo[outcome.index]
            tracker.advance(shard.cell.work(len(shard.examples)) - reported.pop(outcome.index, 0))
            self._settle(executor.name, shard, outcome)
            tracker.total = tracker.done - reported.total() + self._work_left(boards, places)
            self._announce(shard.board, places[shard.board.id], announced)

    def _work_left(self, boards: Sequence[PlannedBoard], places: Mapping[int, Sequence[int]]) -> float:
        """What is left, in the engines' units, by how many examples are expected to reach each cell."""
        return sum(
            board.cells[place].work(1) * count
            for board in boards
            for place, count in enumerate(board.schedule.expected(board.shares))
            if place in places[board.id]
        )

    def _wait(self, board: PlannedBoard) -> None:
        """Everything left is in other drivers' hands: they finish it, or their claims end."""
        count = leases.waiting_for(self.database, [cell.key for cell in board.cells])
        if count and not self._waited:
            self._waited = True
            self.reporter.say(f"waiting for {count} shards that another run has in hand")
        time.sleep(0.5)

    def _announce(self, board: PlannedBoard, places: Sequence[int], announced: set[str]) -> None:
        """Says which cells have become complete."""
        new = [p for p in places if board.cells[p].fingerprint not in announced and board.schedule.complete(p)]
        for place in new:
            cell = board.cells[place]
            announced.add(cell.fingerprint)
            self.summary.done += 1
            self.reporter.say(f"done: {cell.name}{self._broken(cell) if board.on_survivors else ''}")
        if new and board.on_survivors:
            completeness.update(self.database, board.id)

    def _broken(self, cell: PlannedCell) -> str:
        """How many of those that it was shown a cell broke, in words."""
        shown, right = writer.totals(self.database, cell.key)
        return f": broke {shown - right} of {shown}" if shown else ": nothing was left for it"

    def _settle(self, worker: str, shard: Shard, outcome: Outcome) -> None:
        """Judges and stores an outcome; where that is not possible, the cell is marked failed."""
        cell, error = shard.cell, outcome.error
        if outcome.attacked is not None:
            try:
                self._store(shard, outcome.attacked, outcome.seconds, worker, self.options.keep_images)
                return
            except Unusable as refusal:
                error = str(refusal)
        error = one_line(error or "failed")  # an executor of another package may give any words
        if self.options.debug and outcome.detail:
            self.reporter.say(several_lines(outcome.detail))
        self._failures[cell.fingerprint] += 1
        shard.board.schedule.failed(shard.place, shard.examples)
        if self._failures[cell.fingerprint] >= FAILURES:
            shard.board.schedule.give_up(shard.place)
        writer.fail_shard(self.database, cell.key, shard.examples, worker, error)
        self.summary.failed[cell.name] = error
        self.reporter.say(f"failed: {cell.name}: {error}")

    def _store(self, shard: Shard, attacked: Attacked, seconds: float, worker: str, keep: bool) -> None:
        """Raises Unusable for what the attack did wrong; anything else, such as a full disk, ends the run."""
        cell, examples = shard.cell, list(shard.examples)
        contest = cell.contest
        clean, labels = contest.images[examples], contest.examples.labels[examples]
        try:
            attacked = rows.checked(attacked, clean.shape, cell.parts)
            epsilon, rounded = contest.spec.epsilon[cell.norm], self.options.judge_rounded
            verdict = contest.referee.judge(clean, labels, attacked.images, cell.norm, epsilon, rounded)
        except BenchError as error:
            raise Unusable(str(error)) from error
        span = (examples[0], examples[-1] + 1)
        file, digest = images.save(self._folder, cell.fingerprint, *span, attacked.images) if keep else (None, None)
        found = rows.rows_of(examples, labels, verdict, attacked)
        result = ShardResult(found, worker, seconds, attacked.flags, cell.parts, file, digest, attacked.examined)
        if not writer.record_shard(self.database, cell.key, result, len(contest.examples)):
            shard.board.schedule.lost(shard.place, examples)
            return
        wrong = [example for example, right in zip(examples, verdict.correct, strict=True) if not right]
        shard.board.schedule.finished(shard.place, examples, wrong)

    def _task(self, index: int, shard: Shard) -> AttackTask:
        cell, examples = shard.cell, list(shard.examples)
        contest, pair = cell.contest, cell.pair
        assert pair is not None
        batch = Batch(
            contest.images[examples],
            contest.examples.labels[examples],
            plan.example_seeds(contest.spec.seed, cell.fingerprint, examples),
            cell.norm,
            contest.spec.epsilon[cell.norm],
            self.options.batch_size,
        )
        setup, settings = contest.setup(self.options.may_train), dataclasses.asdict(pair.settings)
        probed = sum(example < checking.budget(cell).attacked for example in examples)
        return AttackTask(index, setup, pair.engine, settings, pair.source, pair.strategy, batch, probed)
