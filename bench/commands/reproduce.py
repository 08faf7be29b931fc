"""`bench reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.api import BenchError, UsageError
from bench.commands.options import (
    command_line,
    count_option,
    dataset_option,
    db_option,
    examples,
    executor_options,
    key_option,
    no_train_option,
    norms_option,
    preset_option,
    site_option,
)
from bench.support import devices

if TYPE_CHECKING:
    from bench.commands.options import StartExecutor

ALL = "all"


@click.command(
    epilog=examples(
        "bench reproduce table3 --preset smoke",
        "bench reproduce figure6 figure7 figure8 figure9  # sensitivity to F, L, K and N",
        "bench reproduce all --preset paper --executor ray --ray-address auto --workers 8 --gpus-per-worker 1",
    )
)
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@preset_option
@dataset_option
@count_option
@norms_option
@db_option
@key_option
@no_train_option
@executor_options
@site_option
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
def reproduce(
    names: tuple[str, ...],
    preset: str,
    dataset: str | None,
    count: int | None,
    norms: tuple[str, ...],
    db: str,
    key_file: Path | None,
    no_train: bool,
    executor: StartExecutor,
    out: Path | None,
    quiet: bool,
) -> None:
    """Make tables and figures of the paper again: table1 to table7, figure2 to figure17, or all.

    Runs what is missing, as 'bench run' and 'bench keysearch' would, and writes each beside the paper's numbers into the
    folder 'paper' of the leaderboard: a page, CSV, LaTeX of a table, SVG of a figure. Interrupted, the same command goes on.
    """
    wanted = chosen(names)
    from bench import keys, spec
    from bench.commands.site import built, site_folder
    from bench.data import datasets
    from bench.evaluation import images
    from bench.evaluation.run import Options, Run
    from bench.reproduction.contents import STORED
    from bench.reproduction.sizes import sizes
    from bench.store.database import open_database, user_errors
    from bench.support.progress import Reporter

    key, reporter = keys.load(key_file), Reporter(quiet=quiet)
    resolved = spec.resolve(preset, dataset=dataset, examples=count, norms=norms)
    datasets.load(resolved.dataset).examples(resolved.examples)  # before anything is written
    started = executor(reporter.say)
    sizes(resolved)
    database = open_database(db, create=True)
    command = command_line()
    debug = click.get_current_context().find_root().params["debug"]
    devices.configure()
    from bench.reproduction.driver import Driver
    from bench.reproduction.writing import Writer

    options = Options(may_train=not no_train, command=command, debug=debug)
    work = Run(database, images.folder_of(db), options, reporter, started)
    driver = Driver(
        database, resolved, key, work, reporter, may_train=not no_train,
        command=f"bench reproduce {' '.join(names)} --preset {preset}",
    )  # fmt: skip
    try:
        with user_errors(db):
            work.start(resolved)
            driver.run(wanted)
            work.finish()
            folder, failed = out or site_folder(db), work.summary.failed
            writer = Writer(resolved, key, driver.results, failed, folder, command, not no_train, reporter.say)
            counted_first = sorted(wanted, key=lambda name: name not in STORED)  # what is drawn may take long
            written = [page for name in counted_first if (page := writer.write(name))]
            first = built(database, db, out)
    finally:
        work.close()
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
