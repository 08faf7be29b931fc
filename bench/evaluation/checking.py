"""Checks the sources that attacks with gradients compute with, once per board, and writes down what was found."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy.engine import Engine as Database

from bench import plan
from bench.api import Batch, HealthBudget
from bench.executors.base import HEALTH, AttackTask, Executor, Outcome
from bench.store import health
from bench.store.health import SourceHealth
from bench.support.progress import Reporter
from bench.support.text import one_line

if TYPE_CHECKING:
    from bench.evaluation.planned import PlannedCell
    from bench.evaluation.run import Options


def unchecked(database: Database, cells: Sequence[PlannedCell]) -> list[PlannedCell]:
    """One cell of each source that attacks with gradients use, and that was not checked on its board yet."""
    with database.connect() as connection:
        known = {board: health.of_board(connection, board) for board in {cell.key[0] for cell in cells}}
    found: dict[tuple[int, int], PlannedCell] = {}
    for cell in cells:
        board, _, source = cell.key
        checked = source in known[board] and known[board][source].error is None
        if cell.pair and cell.engine and cell.engine.needs_gradient and not checked and budget(cell).images:
            found.setdefault((board, source), cell)
    return list(found.values())


def budget(cell: PlannedCell) -> HealthBudget:
    """How much is checked of a cell's source, and of its attack."""
    assert cell.pair is not None
    return cell.contest.spec.health_of(cell.pair.description.kind)


def check(
    database: Database, executor: Executor, cells: Sequence[PlannedCell], options: Options, reporter: Reporter
) -> None:
    """Has the sources of these cells checked. One that cannot be is named, and is tried again by the next run."""
    if not cells:
        return
    tasks = (_task(index, cell, options) for index, cell in enumerate(cells) if unchecked(database, [cell]))
    with reporter.track("checking sources", len(cells)) as tracker:
        for outcome in executor.run(lambda: next(tasks, None), lambda index, amount: None):
            if outcome is not None:
                cell = cells[outcome.index]
                _record(database, cell, outcome, reporter)
                tracker.advance(1, f"{cell.norm} {cell.pair.source if cell.pair else ''}")


def _record(database: Database, cell: PlannedCell, outcome: Outcome, reporter: Reporter) -> None:
    found = SourceHealth({}, {}, outcome.seconds, one_line(outcome.error or "failed"))
    if outcome.attacked is not None:
        found = SourceHealth(outcome.attacked.flags, outcome.attacked.examined, outcome.seconds)
    else:
        assert cell.pair is not None
        reporter.say(f"not checked: {cell.contest.defence_name} {cell.norm} {cell.pair.source}: {found.error}")
    health.record(database, cell.key[0], cell.key[2], found)


def _task(index: int, cell: PlannedCell, options: Options) -> AttackTask:
    contest, pair, own = cell.contest, cell.pair, budget(cell)
    assert pair is not None
    count = min(own.images, len(contest.examples))
    source = contest.source_row(pair)["fingerprint"]
    batch = Batch(
        contest.images[:count],
        contest.examples.labels[:count],
        plan.example_seeds(contest.spec.seed, f"{HEALTH}/{source}/{cell.norm}", range(count)),
        cell.norm,
        contest.spec.epsilon[cell.norm],
        options.batch_size,
    )
    setup = contest.setup(options.may_train)
    return AttackTask(index, setup, HEALTH, dataclasses.asdict(own), pair.source, pair.strategy, batch)
