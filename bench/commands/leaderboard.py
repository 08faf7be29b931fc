"""`bench leaderboard`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.options import db_option, examples, opened, site_option

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine as Database

    from bench.support.progress import Track


@click.command(
    epilog=examples(
        "bench leaderboard",
        "bench leaderboard --open",
        "bench leaderboard --db results/bench.db --out site --pictures 10000",
    )
)
@db_option
@site_option
@click.option(
    "--pictures",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Most examples per board with a picture of their adversarial image.",
)
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
def leaderboard(db: str, out: Path | None, pictures: int, show: bool) -> None:
    """Build the static leaderboard from what is stored, and say where it is. It opens as a file, without a server."""
    from bench.support.progress import Reporter

    with opened(db) as database:
        page = built(database, db, out, Reporter().track, pictures)
    click.echo(page)
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def site_folder(db: str) -> Path:
    """Where the site of a database is, unless --out says otherwise."""
    from bench.evaluation import images

    return images.folder_of(db).parent / "leaderboard"


def built(database: Database, db: str, out: Path | None, track: Track, pictures: int = 1000) -> Path:
    """Builds the site of a database with the pictures that are kept beside it; returns its first page."""
    from bench.evaluation import images
    from bench.evaluation.pictures import KeptPictures
    from leaderboard.build import build

    return build(database, out or site_folder(db), KeptPictures(images.folder_of(db)), pictures, track)
