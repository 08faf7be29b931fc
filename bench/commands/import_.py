"""`bench import`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import db_option, examples, factory_option, key_option, opened_vault
from bench.support import devices
from bench.support.printable import printable


@click.command(
    "import", epilog=examples("bench import theirs.zip", "bench import theirs.zip --key-file theirs.key --db all.db")
)
@click.argument("file", type=click.Path(path_type=Path))
@db_option
@key_option
@factory_option
def import_(file: Path, db: str, key_file: Path | None, factories: tuple[str, ...]) -> None:
    """Take over somebody's exported results: checked, judged again with their weights and key where those are here.

    Results that could not be judged here are shown as such, and count towards nothing.
    """
    from bench.evaluation import images
    from bench.support.progress import Reporter

    reporter = Reporter()
    with opened_vault(key_file) as vault:
        devices.configure()
        from bench.exchange import importing

        done = importing.import_(file, db, images.folder_of(db), vault, reporter.track, frozenset(factories))
    for reason in (*done.unjudged.values(), *done.unjudged_cells.values()):
        click.echo(printable(f"not judged here: {reason}"))
    click.echo(f"{done.cells} cells and {done.rows} rows taken over, {done.there_already} rows were there already")
