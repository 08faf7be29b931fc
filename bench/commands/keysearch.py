"""`bench keysearch`."""

from __future__ import annotations

import dataclasses
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.options import (
    ClassifierOptions,
    SpecOptions,
    bundled,
    classifier_options,
    command_line,
    db_option,
    examples,
    format_option,
    opened,
    quiet_option,
    training_options,
)
from bench.errors import UsageError
from bench.keysearch.request import ERROR, SLACK
from bench.support.printable import printable, printable_json

if TYPE_CHECKING:
    from bench.keysearch.guesses import GuessSource
    from bench.keysearch.session import Searched


@dataclasses.dataclass(frozen=True)
class GuessOptions:
    """Which keys are guessed."""

    meta_seeds: str | None
    draws: int
    generator: str | None
    keys_file: Path | None
    random_count: int | None
    seed: int
    limit: int | None

    def sources(self) -> tuple[GuessSource, ...]:
        """The sources of guesses that were asked for, in a fixed order."""
        from bench.keysearch import guesses

        sources: list[GuessSource] = []
        if self.meta_seeds is not None:
            first, dots, last = self.meta_seeds.partition("..")
            try:
                sources.append(guesses.MetaSeeds(int(first), int(last if dots else first), self.draws))
            except ValueError:
                raise UsageError(f"--meta-seeds is '{self.meta_seeds}'; give FIRST..LAST, such as 0..99") from None
        if self.keys_file is not None:
            sources.append(guesses.KeysFile(self.keys_file))
        if self.generator is not None:
            sources.append(guesses.PaperGenerator())
        if self.random_count is not None:
            sources.append(guesses.RandomKeys(self.random_count, self.seed))
        if not sources:
            raise UsageError(
                "no guesses asked for: give --meta-seeds 0..99, --generator paper, --keys-file or --random"
            )
        return tuple(sources)


guess_options = bundled(
    GuessOptions,
    "guess_options",
    click.option(
        "--meta-seeds", metavar="FIRST..LAST", help="Keys as the paper drew its own: numpy's first for every seed."
    ),
    click.option(
        "--draws", type=click.IntRange(1), default=1, show_default=True, help="With --meta-seeds: draws per seed."
    ),
    click.option(
        "--generator", type=click.Choice(["paper"]), help="The 100,000 keys of Figure 2: 10,000 of seeds 1 to 10."
    ),
    click.option("--keys-file", type=click.Path(path_type=Path), help="Keys of your own, one integer per line."),
    click.option("--random", "random_count", type=click.IntRange(1), metavar="N", help="N keys, uniform over 64 bits."),
    click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of --random, and of the images."
    ),
    click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N of these guesses."),
)


@dataclasses.dataclass(frozen=True)
class ScoringOptions:
    """How guesses are scored."""

    image_count: int
    paper: bool
    no_race: bool
    slack: float
    error: float
    stop_when_found: bool


scoring_options = bundled(
    ScoringOptions,
    "scoring",
    click.option(
        "--images",
        "image_count",
        type=click.IntRange(10),
        default=1000,
        show_default=True,
        help="Training images per guess.",
    ),
    click.option(
        "--paper", is_flag=True, help="Score on the first 100 test images, as the paper did: outside the threat model."
    ),
    click.option(
        "--no-race", is_flag=True, help="Score hopeless guesses to the end too, and see what the race would save."
    ),
    click.option(
        "--slack",
        type=click.FloatRange(0, 1),
        default=SLACK,
        show_default=True,
        help="How far below the defended accuracy a key must be kept.",
    ),
    click.option(
        "--error",
        type=click.FloatRange(0, 0.5, min_open=True),
        default=ERROR,
        show_default=True,
        help="Probability that the race loses the right key, at most.",
    ),
    click.option("--stop-when-found", is_flag=True, help="Stop at the first guess that breaks the defence."),
)


@click.command(
    epilog=examples(
        "bench keysearch --defence linac --meta-seeds 0..99              # finds the paper's own key, the 43rd guess",
        "bench keysearch --defence linac --generator paper --limit 1000  # the first of the 100,000 keys of Figure 2",
        "bench keysearch --defence block-shuffle --random 1000 --no-race --format csv > guesses.csv",
        "bench keysearch --defence linac --keys-file keys.txt --stop-when-found --save found.key",
    )
)
@click.option("--defence", required=True, help="A keyed one: NAME or 'NAME[setting=value,…]'.")
@guess_options
@scoring_options
@click.option(
    "--save", type=click.Path(path_type=Path), help="Write the key that was found to this new file, mode 600."
)
@click.option(
    "--key-name", help="Name of the key the classifier was trained with.  [default: BENCH_KEY's, else published]"
)
@training_options
@classifier_options
@db_option
@format_option
@quiet_option
def keysearch(
    defence: str,
    guess_options: GuessOptions,
    scoring: ScoringOptions,
    save: Path | None,
    key_name: str | None,
    spec_options: SpecOptions,
    classifier: ClassifierOptions,
    db: str,
    form: str,
    quiet: bool,
) -> None:
    """Guess a defence's key: score guesses by the defended classifier's accuracy on training images.

    The right key shows by its accuracy. Hopeless guesses are dropped after a few images, by a test that loses the right
    key with a probability of at most --error. No guess is scored twice: stop at any moment, give the same command to go
    on, or other guesses to go further. This command never has the private key.
    """
    from bench import keys

    named = keys.name_in_environment()  # before any other process is started
    sources = guess_options.sources()
    if save is not None and save.exists():
        raise UsageError(f"--save {save}: it exists already, and a key file is never overwritten")
    from bench.keysearch import session
    from bench.keysearch.request import SearchRequest
    from bench.support.progress import Reporter

    request = SearchRequest(
        spec_options.resolve(),
        defence,
        key_name or named or keys.PUBLISHED_ID,
        sources,
        guess_options.limit,
        scoring.image_count,
        guess_options.seed,
        scoring.paper,
        scoring.slack,
        scoring.error,
        scoring.no_race,
        scoring.stop_when_found,
        classifier.given(),
    )
    if classifier.own_weights is not None:
        raise UsageError("--weights is for --classifier torch:…: give that too")
    ready, reporter = session.prepared(request), Reporter(quiet=quiet)
    with opened(db, create=True) as database:
        result = session.searched(ready, database, command_line(), reporter)
    reporter.say(f"{result.scored:,} guesses scored now, {len(result.search.guesses):,} in all")
    _print(result, form)
    if save is not None and result.search.found:
        _save(save, result.search.found[0].guess)


def _print(result: Searched, form: str) -> None:
    from bench.keysearch import report

    if form == "csv":
        click.echo(printable(report.as_csv(result.search)), nl=False)
    elif form == "json":
        click.echo(printable_json(report.as_json(result.search, result.found_at)))
    else:
        from rich.console import Console

        width = max(100, Console().width)  # a guess is never cut short
        console = Console(soft_wrap=True, highlight=False, width=width)
        report.print_report(result.search, result.found_at, console)


def _save(path: Path, key: int) -> None:
    """A key file as `--key-file` reads it."""
    from bench import keys

    keys.keep(path, keys.PrivateKey(f"found{secrets.token_hex(4)}", key))
    click.echo(f"{path}: the key that was found, for --key-file", err=True)
