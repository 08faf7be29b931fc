"""`bench plan`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.options import (
    ClassifierOptions,
    SpecOptions,
    classifier_options,
    db_option,
    defences_option,
    examples,
    key_option,
    opened,
    opened_vault,
    spec_options,
)
from bench.support import devices
from bench.support.printable import markup

if TYPE_CHECKING:
    from rich.table import Table
    from sqlalchemy.engine import Engine as Database

    from bench.evaluation.forecast import Forecast
    from bench.spec import Spec

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
@spec_options()
@classifier_options
@db_option
@key_option
def plan(
    defences: tuple[str, ...],
    attacks: tuple[str, ...],
    spec_options: SpecOptions,
    classifier: ClassifierOptions,
    db: str,
    key_file: Path | None,
) -> None:
    """Say what a run would take, without running it: cells, gradients, queries, transforms, and time on this machine.

    What is stored already is left out. Counts are upper bounds; times come from a calibration of some seconds, which
    for the paper's networks is about a minute.
    """
    from bench.evaluation import forecast, session
    from bench.plan import reference_notice
    from bench.support.progress import Reporter, duration

    found = []
    with opened_vault(key_file) as vault:
        request = session.Request(
            spec_options.resolve(), defences, attacks, vault, classifier.own_weights, classifier=classifier.given()
        )
        if request.classifier is not None:
            devices.configure()  # it is tried first
        plans, reporter = session.planned(request), Reporter()
        devices.configure()
        with _opened_if_there(db) as database:
            forecasts = forecast.forecasts(request, plans, database, reporter.say)
            for planned, one in zip(plans, forecasts, strict=True):
                _print(one, request.spec)
                if notice := reference_notice(planned.pairs):
                    click.echo(f"{one.defence}: {notice}")
                found.append(one)
    if len(found) > 1:
        click.echo(f"all attacks: about {duration(sum(one.seconds for one in found))} on this machine")
    for network, timed in {pair: None for one in found for pair in one.stand_ins.items()}:
        click.echo(
            f"assumed: {network} takes as much longer than {timed}, which was timed, as it has more multiplications"
        )


@contextlib.contextmanager
def _opened_if_there(db: str) -> Iterator[Database | None]:
    from bench.store.database import NoDatabase

    with contextlib.ExitStack() as stack:
        try:
            database = stack.enter_context(opened(db))
        except NoDatabase:
            database = None
        yield database


def _print(found: Forecast, spec: Spec) -> None:
    from rich.console import Console

    from bench.support.progress import duration

    Console(width=max(WIDTH, Console().width)).print(
        _table(f"{found.defence}: {spec.examples} examples, {', '.join(spec.norms)}", found)
    )
    count, training = found.count, found.training
    click.echo(
        f"{found.defence}: {found.cells} cells, at most {count.gradients:,} gradients, {count.queries:,} "
        f"queries and {count.transforms:,} transforms; about {duration(found.seconds)} on this machine"
    )
    for norm, steps in found.steps.items():
        told = ", ".join(f"{step.name} {step.examples}" for step in steps)
        click.echo(f"{found.defence}: order on survivors in {norm}, and how many are expected to reach each: {told}")
    everything, survivors = found.by_scope.values()
    unknown = "" if found.measured else " at most: nothing was measured of this defence, as if no attack broke anything"
    click.echo(
        f"{found.defence}: from nothing, with scope all about {duration(everything)}, with scope survivors about "
        f"{duration(survivors)}{f' ({survivors / everything:.2f} of it)' if everything else ''}{unknown}"
    )
    click.echo(
        f"{found.defence}: training its {training.models} models, if none is there yet: {training.passes:,} passes, "
        f"about {duration(training.seconds)}"
    )


def _table(title: str, found: Forecast) -> Table:
    from rich.table import Table

    from bench.support.progress import duration

    table = Table(title=markup(title), title_justify="left")
    for column in ("engine", "source", "cells", "gradients", "queries", "transforms", "time here"):
        table.add_column(column, justify="left" if column in ("engine", "source") else "right")
    for line in found.lines:
        table.add_row(line.engine, line.source, str(line.cells), f"{line.count.gradients:,}",
                      f"{line.count.queries:,}", f"{line.count.transforms:,}", duration(line.seconds))  # fmt: skip
    return table
