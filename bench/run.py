"""The driver of a run: plans cells, has them attacked elsewhere, has the referee judge, and stores shard by shard."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy.engine import Engine as Database

import bench
from bench import devices, doubts, images, plan
from bench.api import Attacked, Batch, BenchError
from bench.contest import Contest
from bench.executors.inside import InsideExecutor
from bench.executors.local import LocalExecutor, Outcome
from bench.executors.worker import Task
from bench.fingerprint import fingerprint
from bench.plan import Pair
from bench.progress import Reporter
from bench.store import schema, writer
from bench.store.schema import CLEAN
from bench.store.writer import CellKey, ShardResult


@dataclasses.dataclass(frozen=True)
class Options:
    """What changes how a run goes, but never a number."""

    batch_size: int = 64
    shard_size: int = 50
    keep_images: bool = True
    may_train: bool = True
    command: str = ""
    debug: bool = False


@dataclasses.dataclass(frozen=True)
class PlannedCell:
    """A cell with its place in the store, and what of it is to do."""

    contest: Contest
    pair: Pair | None  # None for the unperturbed images
    norm: str
    key: CellKey
    fingerprint: str
    shards: Sequence[tuple[int, int]]

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


class Run:
    """One call of `bench run`."""

    def __init__(self, database: Database, image_folder: Path, options: Options, reporter: Reporter) -> None:
        self._db, self._folder, self._options, self._reporter = database, image_folder, options, reporter
        self._executor = LocalExecutor(reporter.say)
        self.summary = Summary()
        self._run_id = 0

    def start(self, spec: Any) -> None:
        """Writes down what is about to run, and with what."""
        versions = {name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "numpy", "sqlalchemy")}
        self._run_id = writer.start_run(
            self._db,
            {
                "command": self._options.command,
                "preset": spec.preset,
                "spec_json": json.dumps(dataclasses.asdict(spec)),
                "versions_json": json.dumps(
                    {"bench": bench.__version__, "python": platform.python_version(), **versions}
                ),
                "device": devices.describe(),
                "git_commit": _git_commit(),
            },
        )

    def execute(self, contest: Contest, pairs: Sequence[Pair]) -> None:
        """Plans and runs all cells of a contest; a cell that fails does not stop the others."""
        cells = self._planned(contest, pairs)
        self._judge_clean([cell for cell in cells if cell.pair is None])
        todo = [(cell, start, stop) for cell in cells if cell.pair is not None for start, stop in cell.shards]
        if todo:
            with_key = [part for part in todo if part[0].needs_key]
            self._attack(self._executor, [part for part in todo if not part[0].needs_key])
            self._attack(InsideExecutor(contest.key, self._reporter.say), with_key)
            for board_id in {cell.key[0] for cell, _, _ in todo}:
                doubts.update(self._db, board_id)

    def finish(self) -> None:
        writer.finish_run(self._db, self._run_id)

    def close(self) -> None:
        self._executor.close()

    def _planned(self, contest: Contest, pairs: Sequence[Pair]) -> list[PlannedCell]:
        defence_id = writer.ensure(self._db, schema.defence, contest.defence_row())
        cells = []
        for norm in contest.spec.norms:
            row = contest.board_row(norm, defence_id)
            board_id = writer.ensure(self._db, schema.board, row)
            self.summary.board_ids.append(board_id)
            for pair in (None, *pairs):
                cells.append(self._cell(contest, pair, norm, board_id, row["fingerprint"]))
        return cells

    def _cell(self, contest: Contest, pair: Pair | None, norm: str, board_id: int, board: str) -> PlannedCell:
        if pair is None:
            nothing = {"name": CLEAN, "version": "1", "params_json": "{}", "fingerprint": fingerprint(CLEAN)}
            attack_row, source_row = nothing, nothing
        else:
            attack_row, source_row = contest.attack_row(pair), contest.source_row(pair)
        attack_id = writer.ensure(self._db, schema.attack, attack_row)
        source_id = writer.ensure(self._db, schema.source, source_row)
        key = (board_id, attack_id, source_id)
        writer.ensure_cell(
            self._db,
            key,
            {
                "run_id": self._run_id,
                "strategy": pair.strategy if pair else CLEAN,
                "inside_threat_model": pair.inside_threat_model if pair else True,
            },
        )
        done = writer.done_ranges(self._db, key)
        left = plan.shards(len(contest.examples), done, self._options.shard_size)
        if pair is not None:
            self.summary.kept += not left
            self.summary.resumed += bool(left and done)
        identity = fingerprint([board, attack_row["fingerprint"], source_row["fingerprint"]])
        return PlannedCell(contest, pair, norm, key, identity, left)

    def _judge_clean(self, cells: Sequence[PlannedCell]) -> None:
        for cell in cells:
            for start, stop in cell.shards:
                clean = cell.contest.images[start:stop]
                self._record(cell, start, stop, _untouched(clean), 0.0, "driver", keep=False)

    def _attack(self, executor: Any, todo: Sequence[tuple[PlannedCell, int, int]]) -> None:
        if not todo:
            return
        failed: set[str] = set()
        last_of = {cell.fingerprint: index for index, (cell, _, _) in enumerate(todo)}
        sizes = [self._work(cell, stop - start) for cell, start, stop in todo]
        reported = 0.0
        with self._reporter.track(todo[0][0].name, sum(sizes)):

            def progress(index: int, amount: int) -> None:
                nonlocal reported
                reported += amount
                self._reporter.advance(amount, todo[index][0].name)

            for outcome in executor.run(len(todo), lambda index: self._task(*todo[index]), progress):
                cell, start, stop = todo[outcome.index]
                self._reporter.advance(sizes[outcome.index] - reported)
                reported = 0.0
                if not self._settle(cell, start, stop, outcome):
                    failed.add(cell.fingerprint)
                if last_of[cell.fingerprint] == outcome.index and cell.fingerprint not in failed:
                    self.summary.done += 1
                    self._reporter.say(f"done: {cell.name}")

    def _settle(self, cell: PlannedCell, start: int, stop: int, outcome: Outcome) -> bool:
        """Judges and stores an outcome; False, with the cell marked failed, where that is not possible."""
        error = outcome.error
        if outcome.attacked is not None:
            try:
                self._record(
                    cell, start, stop, outcome.attacked, outcome.seconds, "local", keep=self._options.keep_images
                )
                return True
            except BenchError as refusal:
                error = str(refusal)
        if self._options.debug and outcome.detail:
            self._reporter.say(outcome.detail)
        writer.fail_shard(self._db, cell.key, start, stop, "local", error or "failed")
        self.summary.failed[cell.name] = error or "failed"
        self._reporter.say(f"failed: {cell.name}: {error}")
        return False

    def _record(
        self, cell: PlannedCell, start: int, stop: int, attacked: Attacked, seconds: float, worker: str, keep: bool
    ) -> None:
        contest = cell.contest
        clean, labels = contest.images[start:stop], contest.examples.labels[start:stop]
        verdict = contest.referee.judge(clean, labels, attacked.images, cell.norm, contest.spec.epsilon[cell.norm])
        count = stop - start
        part = attacked.part if attacked.part is not None else np.full(count, -1)
        for name, column in (
            ("success", attacked.success),
            ("margin", attacked.margin),
            ("restart", attacked.restart),
            ("target", attacked.target),
            ("gradients", attacked.gradients),
            ("queries", attacked.queries),
            ("part", part),
        ):
            if np.shape(column) != (count,):
                raise BenchError(f"the attack returned {np.shape(column)} values of {name} for {count} examples")
        file, digest = (
            images.save(self._folder, cell.fingerprint, start, stop, attacked.images) if keep else (None, None)
        )
        rows = [
            {
                "example_idx": start + i,
                "correct": int(verdict.correct[i]),
                "pred": int(verdict.pred[i]),
                "label": int(labels[i]),
                "margin": float(verdict.margin[i]),
                "distance": float(verdict.distance[i]),
                "source_success": int(attacked.success[i]),
                "source_margin": _finite(attacked.margin[i]),
                "restart": int(attacked.restart[i]),
                "target": int(attacked.target[i]),
                "part": int(part[i]),
                "gradients": int(attacked.gradients[i]),
                "queries": int(attacked.queries[i]),
            }
            for i in range(count)
        ]
        writer.record_shard(
            self._db,
            cell.key,
            ShardResult(start, stop, rows, worker, seconds, attacked.flags, attacked.parts, file, digest),
            len(contest.examples),
        )

    def _task(self, cell: PlannedCell, start: int, stop: int) -> Task:
        contest, pair = cell.contest, cell.pair
        assert pair is not None
        seeds = plan.example_seeds(contest.spec.seed, cell.fingerprint, start, stop)
        batch = Batch(
            contest.images[start:stop],
            contest.examples.labels[start:stop],
            seeds,
            cell.norm,
            contest.spec.epsilon[cell.norm],
            self._options.batch_size,
        )
        setup, settings = contest.setup(self._options.may_train), dataclasses.asdict(pair.settings)
        return Task(setup, pair.engine, settings, pair.source, pair.strategy, batch)

    def _work(self, cell: PlannedCell, examples: int) -> int:
        from bench import registry

        assert cell.pair is not None
        return registry.create("attacks", cell.pair.engine, dataclasses.asdict(cell.pair.settings)).work(examples)


def _untouched(clean: np.ndarray) -> Attacked:
    """The unperturbed images as an attack that does nothing."""
    count = len(clean)
    zeros, none = np.zeros(count, np.int64), np.full(count, -1, np.int32)
    return Attacked(clean, zeros.astype(bool), zeros.astype(np.float32), none, none, zeros, zeros)


def _finite(value: float) -> float:
    """JSON and some databases know no NaN or infinity; an unknown margin is 0."""
    return float(value) if np.isfinite(value) else 0.0


def _git_commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
        return found.stdout.strip() or None if found.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None
