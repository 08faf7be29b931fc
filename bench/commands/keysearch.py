"""`bench keysearch`."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.api import UsageError
from bench.commands.options import command_line, db_option, examples, preset_option
from bench.keysearch.race import ERROR, SLACK

if TYPE_CHECKING:
    from bench.keysearch.guesses import GuessSource
    from bench.store.key_searches import KeySearch


@click.command(
    epilog=examples(
        "bench keysearch --defence linac --meta-seeds 0..99              # finds the paper's own key, the 43rd guess",
        "bench keysearch --defence linac --generator paper --limit 1000  # the first of the 100,000 keys of Figure 2",
        "bench keysearch --defence block-shuffle --random 1000 --no-race --format csv > guesses.csv",
        "bench keysearch --defence linac --keys-file keys.txt --stop-when-found --save found.key",
    )
)
@click.option("--defence", required=True, help="A keyed one: NAME or 'NAME[setting=value,…]'.")
@click.option(
    "--meta-seeds", metavar="FIRST..LAST", help="Keys as the paper drew its own: numpy's first for every seed."
)
@click.option("--draws", type=click.IntRange(1), default=1, show_default=True, help="With --meta-seeds: draws a seed.")
@click.option(
    "--generator", type=click.Choice(["paper"]), help="The 100,000 keys of Figure 2: 10,000 of seeds 1 to 10."
)
@click.option("--keys-file", type=click.Path(path_type=Path), help="Keys of your own, one integer a line.")
@click.option("--random", "random_count", type=click.IntRange(1), metavar="N", help="N keys, uniform over 64 bits.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of --random, and of the images.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N of these guesses.")
@click.option(
    "--images", "image_count", type=click.IntRange(10), default=1000, show_default=True, help="Training images a guess."
)
@click.option(
    "--paper", is_flag=True, help="Score on the first 100 test images, as the paper did: outside the threat model."
)
@click.option(
    "--no-race", is_flag=True, help="Score hopeless guesses to the end too, and see what the race would save."
)
@click.option(
    "--slack",
    type=click.FloatRange(0, 1),
    default=SLACK,
    show_default=True,
    help="How far below the defended accuracy a key must be kept.",
)
@click.option(
    "--error",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=ERROR,
    show_default=True,
    help="Probability that the race loses the right key, at most.",
)
@click.option("--stop-when-found", is_flag=True, help="Stop at the first guess that breaks the defence.")
@click.option(
    "--save", type=click.Path(path_type=Path), help="Write the key that was found to this new file, mode 600."
)
@click.option(
    "--key-name", help="Name of the key the classifier was trained with.  [default: BENCH_KEY's, else published]"
)
@preset_option
@click.option("--dataset", help="cifar10, or the path of an .npz with x_train, y_train, x_test and y_test.")
@db_option
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
def keysearch(
    defence: str,
    meta_seeds: str | None,
    draws: int,
    generator: str | None,
    keys_file: Path | None,
    random_count: int | None,
    seed: int,
    limit: int | None,
    image_count: int,
    paper: bool,
    no_race: bool,
    slack: float,
    error: float,
    stop_when_found: bool,
    save: Path | None,
    key_name: str | None,
    preset: str,
    dataset: str | None,
    db: str,
    form: str,
    quiet: bool,
) -> None:
    """Guess a defence's key: score guesses by the defended classifier's accuracy on training images.

    The right key shows by its accuracy. Hopeless guesses are dropped after a few images, by a test that loses the right
    key with a probability of at most --error. No guess is scored twice: stop at any moment, give the same command to go
    on, or other guesses to go further. This command never has the private key.
    """
    named = os.environ.pop("BENCH_KEY", "").partition(":")[0]  # before any other process is started
    sources = _sources(meta_seeds, draws, generator, keys_file, random_count, seed)
    if save is not None and save.exists():
        raise UsageError(f"--save {save}: it exists already, and a key file is never overwritten")
    from bench import spec
    from bench.keys import PUBLISHED_ID
    from bench.store.database import open_database, user_errors
    from bench.support.progress import Reporter

    resolved = spec.resolve(preset, dataset=dataset)
    from bench.keysearch import driver as searching

    target = searching.find_target(resolved, defence, key_name or named or PUBLISHED_ID)
    sample = (
        searching.paper_sample(target.dataset)
        if paper
        else searching.training_sample(target.dataset, image_count, seed)
    )
    race = searching.rules(target, sample, slack, error)
    database = open_database(db, create=True)
    count = min(limit or sys.maxsize, sum(map(len, sources)))
    with user_errors(db):
        search = searching.Search(database, target, sample, race, command_line(), no_race)
        guesses = itertools.islice(itertools.chain(*sources), count)
        scored = search.run(guesses, count, reporter := Reporter(quiet=quiet), stop_when_found)
        result = search.stored()
    reporter.say(f"{scored:,} guesses scored now, {len(result.guesses):,} in all")
    _print(result, search.found_at, form)
    if save is not None and result.found:
        _save(save, result.found[0].guess)


def _sources(
    meta_seeds: str | None,
    draws: int,
    generator: str | None,
    keys_file: Path | None,
    random_count: int | None,
    seed: int,
) -> list[GuessSource]:
    """The sources of guesses that were asked for, in a fixed order."""
    from bench.keysearch import guesses

    sources: list[GuessSource] = []
    if meta_seeds is not None:
        first, dots, last = meta_seeds.partition("..")
        try:
            sources.append(guesses.MetaSeeds(int(first), int(last if dots else first), draws))
        except ValueError:
            raise UsageError(f"--meta-seeds is '{meta_seeds}'; give FIRST..LAST, such as 0..99") from None
    if keys_file is not None:
        sources.append(guesses.KeysFile(keys_file))
    if generator is not None:
        sources.append(guesses.PaperGenerator())
    if random_count is not None:
        sources.append(guesses.RandomKeys(random_count, seed))
    if not sources:
        raise UsageError("no guesses asked for: give --meta-seeds 0..99, --generator paper, --keys-file or --random")
    return sources


def _print(result: KeySearch, found_at: dict[int, int], form: str) -> None:
    from bench.keysearch import report

    if form == "csv":
        click.echo(report.as_csv(result), nl=False)
    elif form == "json":
        click.echo(report.as_json(result, found_at))
    else:
        from rich.console import Console

        console = Console(
            soft_wrap=True, highlight=False, width=max(100, Console().width)
        )  # a guess is never cut short
        report.print_report(result, found_at, console)


def _save(path: Path, key: int) -> None:
    """A key file as `--key-file` reads it."""
    from bench.support.files import atomic_write

    with atomic_write(path, private=True) as stream:
        stream.write(f"found:{key}\n".encode())
    click.echo(f"{path}: the key that was found, for --key-file", err=True)
