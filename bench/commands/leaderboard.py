"""`bench leaderboard`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import db_option, examples, opened, site_option


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
    from bench import site
    from bench.support.progress import Reporter

    with opened(db) as database:
        page = site.built(database, db, out, Reporter().track, pictures)
    click.echo(page)
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
