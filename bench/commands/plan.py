"""`bench plan`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.api import UsageError
from bench.commands.options import (
    chosen_defences,
    count_option,
    dataset_option,
    db_option,
    defences_option,
    examples,
    key_option,
    norms_option,
    preset_option,
)
from bench.support import devices

if TYPE_CHECKING:
    from rich.table import Table

    from bench.evaluation.estimate import Line

WIDTH = 104  # of the table: a count that is cut off says nothing


@click.command(
    epilog=examples(
        "bench plan --defence linac --attack all --preset paper", "bench plan --defence all --attack all --examples 500"
    )
)
@defences_option
@click.option(
    "--attack", "attacks", multiple=True, default=("all",), show_default=True, help="As of 'bench run', again for more."
)
@preset_option
@dataset_option
@count_option
@norms_option
@db_option
@key_option
def plan(
    defences: tuple[str, ...],
    attacks: tuple[str, ...],
    preset: str,
    dataset: str | None,
    count: int | None,
    norms: tuple[str, ...],
    db: str,
    key_file: Path | None,
) -> None:
    """Say what a run would take, without running it: cells, gradients, queries, transforms, and time on this machine.

    What is stored already is left out. Counts are upper bounds; times come from a calibration of some seconds, which
    for the paper's networks is about a minute.
    """
    from rich.console import Console

    from bench import keys, spec
    from bench import plan as pairing
    from bench.data import datasets
    from bench.evaluation import estimate
    from bench.evaluation.calibration import Calibration
    from bench.support.progress import Reporter, duration

    key = keys.load(key_file)
    resolved = spec.resolve(preset, dataset=dataset, examples=count, norms=norms)
    images = datasets.load(resolved.dataset)
    planned = [(request, pairing.requested(resolved, request, attacks)) for request in chosen_defences(defences)]
    devices.configure()
    reporter, console, everything = Reporter(), Console(width=max(WIDTH, Console().width)), 0.0
    total, stand_ins = resolved.examples * len(resolved.norms), dict[str, str]()
    for request, pairs in planned:
        name, defence = resolved.defence(request)
        done = _stored(resolved, request, key, db, pairs)
        left = {pair.name: total - done.get(pair.name, 0) for pair in pairs}
        calibration = Calibration(resolved, images, name, defence, reporter.say)
        found = estimate.lines(pairs, left, len(resolved.norms), calibration)
        trained = estimate.training(resolved, name, pairs, _training_images(images), calibration)
        console.print(_table(f"{request}: {resolved.examples} examples, {', '.join(resolved.norms)}", found))
        attack = sum(line.seconds for line in found)
        sums = sum((line.count for line in found), estimate.Count())
        click.echo(
            f"{request}: {sum(line.cells for line in found)} cells, at most {sums.gradients:,} gradients, {sums.queries:,} "
            f"queries and {sums.transforms:,} transforms; about {duration(attack)} on this machine"
        )
        click.echo(
            f"{request}: training its {trained.models} models, if none is there yet: {trained.passes:,} passes, "
            f"about {duration(trained.seconds)}"
        )
        everything += attack
        stand_ins |= calibration.stand_ins
    if len(planned) > 1:
        click.echo(f"all attacks: about {duration(everything)} on this machine")
    for network, timed in stand_ins.items():
        click.echo(
            f"assumed: {network} takes as much longer than {timed}, which was timed, as it has more multiplications"
        )


def _table(title: str, lines: Sequence[Line]) -> Table:
    from rich.table import Table

    from bench.support.progress import duration

    table = Table(title=title, title_justify="left")
    for column in ("engine", "source", "cells", "gradients", "queries", "transforms", "time here"):
        table.add_column(column, justify="left" if column in ("engine", "source") else "right")
    for line in lines:
        table.add_row(line.engine, line.source, str(line.cells), f"{line.count.gradients:,}",
                      f"{line.count.queries:,}", f"{line.count.transforms:,}", duration(line.seconds))  # fmt: skip
    return table


def _training_images(images: Any) -> int:
    if images.name == "cifar10":
        return 50_000
    try:
        return len(images.training())
    except UsageError:
        return 0


def _stored(resolved: Any, request: str, key: Any, db: str, pairs: Any) -> dict[str, int]:
    """How many examples of each pair are stored already, over all norms; none where nothing can be."""
    from bench.evaluation import contest
    from bench.store import queries
    from bench.store.database import open_database, user_errors

    try:
        engine = open_database(db, create=False)
        ready = contest.prepare(resolved, request, key, None, False, lambda text: None)
    except UsageError:
        return {}
    boards = [ready.board_row(norm, 0)["fingerprint"] for norm in resolved.norms]
    done = {}
    for pair in pairs:
        attack, source = ready.attack_row(pair)["fingerprint"], ready.source_row(pair)["fingerprint"]
        with user_errors(db):
            done[pair.name] = sum(queries.examples_done(engine, board, attack, source) for board in boards)
    return done
