"""`bench reproduce`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from bench.commands.options import (
    ExecutorOptions,
    SpecOptions,
    command_line,
    db_option,
    debugging,
    examples,
    executor_options,
    key_option,
    no_train_option,
    opened,
    opened_vault,
    quiet_option,
    site_option,
    spec_options,
)
from bench.errors import BenchError, UsageError
from bench.support import devices

ALL = "all"


@click.command(
    epilog=examples(
        "bench reproduce table3 --preset smoke",
        "bench reproduce figure6 figure7 figure8 figure9  # sensitivity to F, L, K and N",
        "bench reproduce all --preset paper --executor ray --ray-address auto --workers 8 --gpus-per-worker 1",
    )
)
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@spec_options()
@db_option
@key_option
@no_train_option
@executor_options
@site_option
@quiet_option
def reproduce(
    names: tuple[str, ...],
    spec_options: SpecOptions,
    db: str,
    key_file: Path | None,
    no_train: bool,
    executor: ExecutorOptions,
    out: Path | None,
    quiet: bool,
) -> None:
    """Make tables and figures of the paper again: table1 to table7, figure2 to figure17, or all.

    Runs what is missing, as 'bench run' and 'bench keysearch' would, and writes each beside the paper's numbers into the
    folder 'paper' of the leaderboard: a page, CSV, LaTeX of a table, SVG of a figure. Interrupted, the same command goes on.
    """
    wanted = chosen(names)
    from bench import site
    from bench.evaluation import images, session
    from bench.evaluation.run import Options, Run
    from bench.reproduction.contents import STORED
    from bench.reproduction.sizes import sizes
    from bench.support.progress import Reporter

    reporter = Reporter(quiet=quiet)
    vault = click.get_current_context().with_resource(opened_vault(key_file))
    spec = dataclasses.replace(spec_options.resolve(), scope="all")  # a table has every cell on every example
    session.require_examples(spec)
    sizes(spec)
    options = Options(may_train=not no_train, command=command_line(), debug=debugging())
    with executor.started(reporter.say) as started, opened(db, create=True) as database:
        devices.configure()
        from bench.reproduction.driver import Driver
        from bench.reproduction.writing import Writer

        work = Run(database, images.folder_of(db), options, reporter, started)
        ahead = f"bench reproduce {' '.join(names)} --preset {spec_options.preset}"
        driver = Driver(database, spec, vault, work, reporter, may_train=not no_train, command=ahead)
        with session.recorded(work, spec):
            driver.run(wanted)
        folder, failed = out or site.folder_of(db), work.summary.failed
        writer = Writer(spec, vault, driver.results, failed, folder, options.command, not no_train, reporter.say)
        counted_first = sorted(wanted, key=lambda name: name not in STORED)  # what is drawn may take long
        written = [page for name in counted_first if (page := writer.write(name))]
        first = site.built(database, db, out, reporter.track)
    click.echo(work.summary)
    for page in written:
        click.echo(page)
    click.echo(f"leaderboard: {first.parent / 'paper.html'}")
    reasons = {**driver.results.failed, **work.summary.failed}
    if reasons:
        raise BenchError("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))


def chosen(names: Sequence[str]) -> list[str]:
    """The tables and figures that were asked for, each once, in the paper's order."""
    from bench.registry import did_you_mean
    from bench.reproduction.contents import NAMES

    for name in names:
        if name not in (*NAMES, ALL):
            raise UsageError(
                f"the paper has no '{name}' to reproduce{did_you_mean(name, NAMES)}; there are table1 to table7, "
                "figure2 to figure17 (Figure 1 is a drawing), and all"
            )
    return [name for name in NAMES if name in names or ALL in names]
