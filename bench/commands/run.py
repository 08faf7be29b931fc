"""`bench run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.api import BenchError, UsageError
from bench.commands.options import (
    chosen_defences,
    command_line,
    count_option,
    dataset_option,
    db_option,
    defences_option,
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


@click.command(
    epilog=examples(
        "bench run --defence block-shuffle --attack all --preset smoke",
        "bench run --defence jpeg-23 --defence jpeg-10 --attack bpda",
        "bench run --defence 'block-shuffle[mode=values]' --attack 'pgd[steps=200]@nominal' --norm linf --epsilon 4/255",
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
@preset_option
@dataset_option
@count_option
@norms_option
@click.option("--epsilon", help="Size of the ball, such as 8/255; with one --norm.")
@click.option("--seed", type=int, help="Seed of all attacks.")
@db_option
@key_option
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Weights (.npz) of the defended classifier, instead of the trained one.",
)
@click.option(
    "--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Examples at once; changes no result."
)
@click.option(
    "--shard-size",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Examples a transaction; changes no result.",
)
@click.option(
    "--discard-adversarial", is_flag=True, help="Do not keep the adversarial images ('bench verify' needs them)."
)
@click.option(
    "--source",
    "own",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A model of yours to transfer from: a .keras file from images in [0,1] to logits; again for more.",
)
@click.option(
    "--key-guess",
    type=click.Path(path_type=Path),
    help="Key file with a key the attacker has found ('bench keysearch'): adds the source guessed-key.",
)
@executor_options
@no_train_option
@click.option(
    "--outside-threat-model", is_flag=True, help="Allow pairs the defence's threat model rules out; they count apart."
)
@site_option
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
def run(
    defences: tuple[str, ...],
    attacks: tuple[str, ...],
    preset: str,
    dataset: str | None,
    count: int | None,
    norms: tuple[str, ...],
    epsilon: str | None,
    seed: int | None,
    db: str,
    key_file: Path | None,
    weights: Path | None,
    batch_size: int,
    shard_size: int,
    discard_adversarial: bool,
    own: tuple[Path, ...],
    key_guess: Path | None,
    executor: StartExecutor,
    no_train: bool,
    outside_threat_model: bool,
    out: Path | None,
    quiet: bool,
) -> None:
    """Attack defences, judge every adversarial image with the private key, and build the leaderboard.

    Whatever is stored already is not run again; interrupt it at any moment and give the same command to go on.
    """
    from bench import keys, plan, spec
    from bench.data import datasets

    key = keys.load(key_file)
    resolved = spec.resolve(preset, dataset=dataset, examples=count, norms=norms, epsilon=epsilon, seed=seed)
    chosen = chosen_defences(defences)
    if weights is not None and len(chosen) != 1:
        raise UsageError("--weights belongs to one defence: give exactly one --defence")
    from bench.evaluation import images
    from bench.evaluation.run import Options, Run
    from bench.store.database import open_database, user_errors
    from bench.support.progress import Reporter

    reporter = Reporter(quiet=quiet)
    datasets.load(resolved.dataset).examples(resolved.examples)  # before anything is written
    own_models = _own_models(own)
    guess = None if key_guess is None else keys.load(key_guess).reveal()
    planned = [
        plan.requested(resolved, request, attacks, tuple(own_models), guess is not None, outside_threat_model)
        for request in chosen
    ]
    started = executor(reporter.say)
    database = open_database(db, create=True)
    command = command_line()
    debug = click.get_current_context().find_root().params["debug"]
    options = Options(batch_size, shard_size, not discard_adversarial, not no_train, command, debug)
    devices.configure()
    from bench.evaluation import contest

    work = Run(database, images.folder_of(db), options, reporter, started)
    try:
        with user_errors(db):
            work.start(resolved)
            for request, pairs in zip(chosen, planned, strict=True):
                ready = contest.prepare(resolved, request, key, weights, not no_train, reporter.say, own_models, guess)
                work.execute(ready, pairs)
            work.finish()
    finally:
        work.close()
    page = _finish(database, work.summary.board_ids, db, out)
    summary = work.summary
    click.echo(summary)
    click.echo(f"leaderboard: {page}")
    if summary.failed:
        raise BenchError("; ".join(f"{name}: {reason}" for name, reason in summary.failed.items()))


def _own_models(paths: tuple[Path, ...]) -> dict[str, Path]:
    """The user's models by the names of their sources: user: and the file's name."""
    named = {f"user:{path.stem}": path.resolve() for path in paths}
    for path in paths:
        if not path.exists():
            raise UsageError(f"--source {path} does not exist")
    if len(named) < len(paths):
        raise UsageError("two --source files have the same name: rename one, results are told apart by it")
    return named


def _finish(database: Any, board_ids: list[int], db: str, out: Path | None) -> Path:
    from rich.console import Console

    from bench.commands.site import built
    from bench.evaluation.report import print_boards
    from bench.store import queries

    print_boards([board for board in queries.boards(database) if board.id in board_ids], Console(soft_wrap=False))
    return built(database, db, out)
