"""`bench leaderboard`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import db_option, examples, site_option


@click.command(epilog=examples("bench leaderboard", "bench leaderboard --db results/bench.db --out site"))
@db_option
@site_option
def leaderboard(db: str, out: Path | None) -> None:
    """Build the static leaderboard from what is stored, and say where it is."""
    from bench import images
    from bench.store.database import explained, open_database
    from leaderboard.build import build

    engine = open_database(db, create=False)
    with explained(db):
        click.echo(build(engine, out or images.folder_of(db).parent / "leaderboard"))
