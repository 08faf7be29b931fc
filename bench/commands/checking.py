"""`bench verify`."""

from __future__ import annotations

from pathlib import Path

import click

from bench import devices
from bench.api import BenchError
from bench.commands.options import db_option, examples, key_option


@click.command(epilog=examples("bench verify", "bench verify --db results/bench.db --key-file my.key"))
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
    problems = [*findings.problems, *findings.unjudged.values()]
    for problem in problems:
        click.echo(problem)
    kept = f"; {findings.without_images} rows without kept images were not judged" if findings.without_images else ""
    click.echo(f"{findings.rows} rows judged again, {len(problems)} problems{kept}")
    if problems:
        raise BenchError(f"{len(problems)} stored results do not hold, or could not be judged")
