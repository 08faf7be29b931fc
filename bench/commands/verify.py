"""`bench verify`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import db_option, examples, factory_option, key_option, opened, opened_vault
from bench.errors import BenchError, UsageError
from bench.support import devices
from bench.support.printable import printable


@click.command(
    epilog=examples("bench verify", "bench verify --db results/bench.db --key-file my.key", "bench verify --zoo")
)
@db_option
@key_option
@factory_option
@click.option("--zoo", is_flag=True, help="Instead, measure the models that come with the package on all test images.")
def verify(db: str, key_file: Path | None, factories: tuple[str, ...], zoo: bool) -> None:
    """Judge every stored adversarial image again from nothing, and compare with every stored row.

    Rows that cannot be judged, as their images were not kept or what judges them is not here, are named; the command
    then ends with exit code 1, as it does where a row does not hold.
    """
    if zoo:
        _verify_zoo()
        return
    from bench.evaluation import images
    from bench.support.progress import Reporter

    reporter = Reporter()
    with opened_vault(key_file) as vault, opened(db) as database:
        devices.configure()
        from bench.evaluation.rejudging import Elsewhere
        from bench.evaluation.verify import verify as check

        elsewhere = Elsewhere(factories=frozenset(factories))
        findings = check(database, images.folder_of(db), vault, reporter.track, elsewhere)
    problems = [*findings.problems, *findings.unjudged.values(), *findings.unjudged_cells.values()]
    for problem in problems:
        click.echo(printable(problem))
    missing = f"; {findings.without_images} rows without images were not judged" if findings.without_images else ""
    click.echo(f"{findings.rows} rows judged again, {len(problems)} problems{missing}")
    if problems:
        raise BenchError(f"{len(problems)} stored results do not hold, or could not be judged")


def _verify_zoo() -> None:
    from bench import keys, spec
    from bench.data import datasets
    from bench.support.progress import Reporter

    resolved, reporter = spec.resolve("laptop"), Reporter()
    devices.configure()
    from bench.evaluation import zoo
    from bench.vault.here import VaultHere

    entries, count = zoo.manifest(), len(datasets.load(resolved.dataset).test)
    if count < min(entry.test_images for entry in entries):
        raise UsageError(f"the zoo was measured on all test images, and {count} are here: run 'bench data fetch' first")
    vault, found = VaultHere(keys.published()), list[str]()
    with reporter.track("measuring the zoo", len(entries)) as tracker:
        for entry in entries:
            wrong = zoo.problem(entry, zoo.ZooBuilder(resolved, vault, reporter.say), reporter.say)
            found += [wrong] if wrong else []
            tracker.advance(1, entry.name)
    for problem in found:
        click.echo(printable(problem))
    click.echo(f"{len(entries)} models measured on {count} test images, {len(found)} problems")
    if found:
        raise BenchError(f"{len(found)} models of the zoo are not what the manifest says")
