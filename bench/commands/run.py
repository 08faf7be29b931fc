"""`bench run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.options import (
    ClassifierOptions,
    ExecutorOptions,
    SpecOptions,
    classifier_options,
    command_line,
    db_option,
    debugging,
    defences_option,
    epsilon_option,
    examples,
    executor_options,
    key_option,
    no_train_option,
    opened,
    opened_vault,
    quiet_option,
    scope_option,
    seed_option,
    site_option,
    spec_options,
)
from bench.errors import BenchError

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine as Database


@click.command(
    epilog=examples(
        "bench run --defence block-shuffle --attack all --preset smoke",
        "bench run --defence jpeg-23 --defence jpeg-10 --attack bpda",
        "bench run --defence 'block-shuffle[mode=values]' --attack 'pgd[steps=200]@nominal' --norm linf --epsilon 4/255",
        "bench run --defence block-shuffle --classifier mine.keras --attack pba",
        "bench run --defence block-shuffle --classifier torch:models:resnet18 --weights mine.safetensors --attack all",
    )
)
@defences_option
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    required=True,
    help="An engine (pgd), a strategy (transfer), a pair (pgd@nominal), again for more; all; or everything, which "
    "adds attacks beyond the paper's.",
)
@spec_options(epsilon_option, seed_option, scope_option)
@db_option
@key_option
@classifier_options
@click.option(
    "--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Examples at once; changes no result."
)
@click.option(
    "--shard-size",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Examples per transaction; changes no result.",
)
@click.option(
    "--discard-adversarial", is_flag=True, help="Do not keep the adversarial images ('bench verify' needs them)."
)
@click.option(
    "--judge-rounded",
    is_flag=True,
    help="Judge each adversarial image rounded to eight bits too, as a PNG keeps it; a column of its own.",
)
@click.option(
    "--source",
    "own_models",
    multiple=True,
    metavar="MODEL",
    help="A model of yours to transfer from, from images in [0,1] to logits: FILE.keras, "
    "torch:package.module:factory@FILE, or a network to train ('bench list networks'); again for more.",
)
@click.option(
    "--key-guess",
    type=click.Path(path_type=Path),
    help="Key file with a key that a search in this database has found ('bench keysearch --save'): adds the source "
    "guessed-key.",
)
@executor_options
@no_train_option
@click.option(
    "--outside-threat-model", is_flag=True, help="Allow pairs the defence's threat model rules out; they count apart."
)
@site_option
@quiet_option
def run(
    defences: tuple[str, ...],
    attacks: tuple[str, ...],
    spec_options: SpecOptions,
    db: str,
    key_file: Path | None,
    classifier: ClassifierOptions,
    batch_size: int,
    shard_size: int,
    discard_adversarial: bool,
    judge_rounded: bool,
    own_models: tuple[str, ...],
    key_guess: Path | None,
    executor: ExecutorOptions,
    no_train: bool,
    outside_threat_model: bool,
    out: Path | None,
    quiet: bool,
) -> None:
    """Attack defences, judge every adversarial image with the private key, and build the leaderboard.

    Whatever is stored already is not run again; interrupt it at any moment and give the same command to go on.
    """
    from bench import keys, site
    from bench.evaluation import session
    from bench.evaluation.run import Options
    from bench.support.progress import Reporter

    options = Options(
        batch_size, shard_size, not discard_adversarial, not no_train, command_line(), debugging(), judge_rounded
    )
    reporter = Reporter(quiet=quiet)
    with opened_vault(key_file) as vault:
        request = session.Request(
            spec_options.resolve(),
            defences,
            attacks,
            vault,
            classifier.own_weights,
            own_models,
            None if key_guess is None else keys.KeyPlace(key_guess).read(),
            outside_threat_model,
            classifier.given(),
        )
        summary = session.run(request, db, options, executor.started, reporter)
    with opened(db) as database:
        _print_boards(database, summary.board_ids, judge_rounded)
        page = site.built(database, db, out, reporter.track)
    click.echo(summary)
    click.echo(f"leaderboard: {page}")
    if summary.failed:
        raise BenchError(summary.problem)


def _print_boards(database: Database, ids: list[int], judge_rounded: bool) -> None:
    from rich.console import Console

    from bench.evaluation.report import print_boards
    from bench.store import queries

    boards = [board for board in queries.boards(database) if board.id in ids]
    print_boards(boards, Console(soft_wrap=False))
    before = sum(cell.rounded is None and cell.status == "done" for board in boards for cell in board.cells)
    if judge_rounded and before:
        click.echo(f"not judged rounded: {before} cells, which were there before --judge-rounded and stay as they are")
