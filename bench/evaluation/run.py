"""The driver of a run: plans cells, has them attacked elsewhere, has the referee judge, and stores shard by shard."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

import bench
from bench import plan, registry
from bench.api import Attacked, Batch, BenchError, Engine
from bench.evaluation import checking, doubts, images, rows
from bench.evaluation.contest import Contest
from bench.executors import replies
from bench.executors.base import AttackTask, Executor, Limits, Outcome
from bench.executors.base import start as start_executor
from bench.models import remote
from bench.plan import Pair
from bench.store import example_sets, identity, leases, schema, writer
from bench.store.identity import Row
from bench.store.schema import CLEAN
from bench.store.writer import CellKey, ShardResult
from bench.support import checkout, devices
from bench.support.progress import Reporter, Tracker
from bench.support.text import one_line, several_lines

FAILURES = 3  # after so many failed shards the rest of a cell is left for another run

Shard = tuple["PlannedCell", int, int]


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


@dataclasses.dataclass(frozen=True)
class PlannedCell:
    """A cell with its place in the store, and what of it is to do."""

    contest: Contest
    pair: Pair | None  # None for the unperturbed images
    norm: str
    key: CellKey
    fingerprint: str
    shards: Sequence[tuple[int, int]]

    @functools.cached_property
    def engine(self) -> Engine | None:
        """The attack engine with its settings; none for the unperturbed images."""
        if self.pair is None:
            return None
        return registry.engine(self.pair.engine, dataclasses.asdict(self.pair.settings))

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the engines that the attack is made of, if of several."""
        return tuple(self.engine.parts) if self.engine else ()

    @property
    def needs_key(self) -> bool:
        return self.pair is not None and self.pair.needs_key

    @property
    def name(self) -> str:
        return f"{self.contest.defence_name} {self.norm} {self.pair.name if self.pair else CLEAN}"


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
        self._failed: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
        self._waited = False
        self.summary = Summary()
        self._run_id = 0

    def start(self, spec: Any) -> None:
        """Writes down what is about to run, and with what."""
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
            },
        )

    def execute(self, contest: Contest, pairs: Sequence[Pair]) -> list[PlannedCell]:
        """Plans and runs all cells of a contest, and returns them; a cell that fails does not stop the others."""
        cells = self._planned(contest, pairs)
        self._judge_clean([cell for cell in cells if cell.pair is None])
        open_cells = [cell for cell in cells if cell.pair is not None and cell.shards]
        unchecked = checking.unchecked(self.database, cells)
        if (open_cells or unchecked) and not self._executor.shares_files:
            remote.offer(contest.weights.parent)
        for needs_key in (False, True):
            own, sources = ([cell for cell in some if cell.needs_key is needs_key] for some in (open_cells, unchecked))
            if own or sources:
                executor = contest.vault.executor(self.reporter.say) if needs_key else self._executor
                self._attack(executor, own)
                checking.check(self.database, executor, sources, self.options, self.reporter)
        for board_id in {cell.key[0] for cell in cells}:  # also what a run that was killed had no time for
            doubts.update(self.database, board_id)
        return cells

    def finish(self) -> None:
        writer.finish_run(self.database, self._run_id)

    def close(self) -> None:
        self._executor.close()
        with contextlib.suppress(sa.exc.SQLAlchemyError):  # a claim that cannot be given back ends by itself
            self._claims.release()

    def _planned(self, contest: Contest, pairs: Sequence[Pair]) -> list[PlannedCell]:
        defence_id = writer.ensure(self.database, schema.defence, contest.defence_row)
        example_sets.keep(self.database, contest.examples.fingerprint, contest.example_digests)
        cells = []
        for norm in contest.spec.norms:
            board = contest.board_row(norm)
            board_id = writer.ensure(self.database, schema.board, {**board, "defence_id": defence_id})
            self.summary.board_ids.append(board_id)
            for pair in (None, *pairs):
                cells.append(self._cell(contest, pair, norm, board_id, board))
        return cells

    def _cell(self, contest: Contest, pair: Pair | None, norm: str, board_id: int, board: Row) -> PlannedCell:
        attack, source = contest.attack_row(pair), contest.source_row(pair)
        attack_id = writer.ensure(self.database, schema.attack, attack)
        source_id = writer.ensure(self.database, schema.source, source)
        key = (board_id, attack_id, source_id)
        writer.ensure_cell(
            self.database,
            key,
            {
                "run_id": self._run_id,
                "strategy": pair.strategy if pair else CLEAN,
                "inside_threat_model": pair.inside_threat_model if pair else True,
            },
        )
        done = writer.done_ranges(self.database, key)
        left = plan.shards(len(contest.examples), done, self.options.shard_size)
        if pair is not None:
            self.summary.kept += not left
            self.summary.resumed += bool(left and done)
        return PlannedCell(contest, pair, norm, key, identity.cell(board, attack, source), left)

    def _judge_clean(self, cells: Sequence[PlannedCell]) -> None:
        while todo := self._left(cells):
            took = 0
            for cell, start, stop in todo:
                self._claims.renew()
                if self._claims.take(cell.key, start, stop):
                    took += 1
                    self._store(
                        cell, start, stop, replies.unchanged(cell.contest.images[start:stop]), 0.0, "driver", False
                    )
            if not took:
                self._wait(cells)

    def _attack(self, executor: Executor, cells: Sequence[PlannedCell]) -> None:
        """Runs what is left of the cells until nothing is, but for what failed here or is done elsewhere."""
        if not cells:
            return
        todo = self._left(cells)
        announced: set[str] = set()
        work = sum(self._work(cell, stop - start) for cell, start, stop in todo)
        with self.reporter.track("attacking", work) as tracker:
            while todo:
                if not self._round(executor, todo, announced, tracker):
                    self._wait(cells)
                todo = self._left(cells)
        for cell in cells:
            self._announce(cell, announced)

    def _round(self, executor: Executor, todo: Sequence[Shard], announced: set[str], tracker: Tracker) -> int:
        """Has every shard attacked that can be claimed; returns how many those were."""
        left = collections.Counter(cell.fingerprint for cell, _, _ in todo)
        reported: collections.Counter[int] = collections.Counter()
        queue, took = iter(enumerate(todo)), 0

        def take() -> AttackTask | None:
            nonlocal took
            for index, (cell, start, stop) in queue:
                hopeless = len(self._failed[cell.fingerprint]) >= FAILURES
                if not hopeless and self._claims.take(cell.key, start, stop):
                    took += 1
                    return self._task(index, cell, start, stop)
            return None

        def progress(index: int, amount: int) -> None:
            reported[index] += amount
            tracker.advance(amount, todo[index][0].name)

        for outcome in executor.run(take, progress):
            self._claims.renew()
            if outcome is None:
                continue
            cell, start, stop = todo[outcome.index]
            tracker.advance(self._work(cell, stop - start) - reported[outcome.index])
            self._settle(executor.name, cell, start, stop, outcome)
            left[cell.fingerprint] -= 1
            if not left[cell.fingerprint]:
                self._announce(cell, announced)
        return took

    def _left(self, cells: Sequence[PlannedCell]) -> list[Shard]:
        """What of these cells is neither stored nor failed here."""
        found: list[Shard] = []
        for cell in cells:
            failed = self._failed[cell.fingerprint]
            if len(failed) < FAILURES:
                done = writer.done_ranges(self.database, cell.key)
                ranges = plan.shards(len(cell.contest.examples), [*done, *failed], self.options.shard_size)
                found += [(cell, start, stop) for start, stop in ranges]
        return found

    def _wait(self, cells: Sequence[PlannedCell]) -> None:
        """Everything left is in other drivers' hands: they finish it, or their claims end."""
        count = leases.waiting_for(self.database, [cell.key for cell in cells])
        if count and not self._waited:
            self._waited = True
            self.reporter.say(f"waiting for {count} shards that another run has in hand")
        time.sleep(0.5)

    def _announce(self, cell: PlannedCell, announced: set[str]) -> None:
        if cell.fingerprint not in announced and not self._failed[cell.fingerprint]:
            announced.add(cell.fingerprint)
            self.summary.done += 1
            self.reporter.say(f"done: {cell.name}")

    def _settle(self, worker: str, cell: PlannedCell, start: int, stop: int, outcome: Outcome) -> None:
        """Judges and stores an outcome; where that is not possible, the cell is marked failed."""
        error = outcome.error
        if outcome.attacked is not None:
            try:
                self._store(cell, start, stop, outcome.attacked, outcome.seconds, worker, self.options.keep_images)
                return
            except Unusable as refusal:
                error = str(refusal)
        error = one_line(error or "failed")  # an executor of another package may give any words
        if self.options.debug and outcome.detail:
            self.reporter.say(several_lines(outcome.detail))
        self._failed[cell.fingerprint].append((start, stop))
        writer.fail_shard(self.database, cell.key, start, stop, worker, error)
        self.summary.failed[cell.name] = error
        self.reporter.say(f"failed: {cell.name}: {error}")

    def _store(
        self, cell: PlannedCell, start: int, stop: int, attacked: Attacked, seconds: float, worker: str, keep: bool
    ) -> None:
        """Raises Unusable for what the attack did wrong; anything else, such as a full disk, ends the run."""
        contest = cell.contest
        clean, labels = contest.images[start:stop], contest.examples.labels[start:stop]
        try:
            attacked = rows.checked(attacked, clean.shape, cell.parts)
            epsilon, rounded = contest.spec.epsilon[cell.norm], self.options.judge_rounded
            verdict = contest.referee.judge(clean, labels, attacked.images, cell.norm, epsilon, rounded)
        except BenchError as error:
            raise Unusable(str(error)) from error
        file, digest = (
            images.save(self._folder, cell.fingerprint, start, stop, attacked.images) if keep else (None, None)
        )
        found = rows.rows_of(start, labels, verdict, attacked)
        said = (attacked.flags, cell.parts, file, digest, attacked.examined)
        result = ShardResult(start, stop, found, worker, seconds, *said)
        writer.record_shard(self.database, cell.key, result, len(contest.examples))

    def _task(self, index: int, cell: PlannedCell, start: int, stop: int) -> AttackTask:
        contest, pair = cell.contest, cell.pair
        assert pair is not None
        seeds = plan.example_seeds(contest.spec.seed, cell.fingerprint, start, stop)
        batch = Batch(
            contest.images[start:stop],
            contest.examples.labels[start:stop],
            seeds,
            cell.norm,
            contest.spec.epsilon[cell.norm],
            self.options.batch_size,
        )
        setup, settings = contest.setup(self.options.may_train), dataclasses.asdict(pair.settings)
        probed = max(0, min(checking.budget(cell).attacked, stop) - start)
        return AttackTask(index, setup, pair.engine, settings, pair.source, pair.strategy, batch, probed)

    def _work(self, cell: PlannedCell, examples: int) -> int:
        assert cell.engine is not None
        return cell.engine.work(examples)
