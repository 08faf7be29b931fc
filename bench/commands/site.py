"""The leaderboard: `bench leaderboard` builds it, `bench serve` shows it over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bench.commands.options import db_option, examples, site_option


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
    help="Adversarial pictures of so many examples a board.",
)
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
def leaderboard(db: str, out: Path | None, pictures: int, show: bool) -> None:
    """Build the static leaderboard from what is stored, and say where it is. It opens as a file, without a server."""
    from bench.store.database import open_database, user_errors

    database = open_database(db, create=False)
    with user_errors(db):
        page = built(database, db, out, pictures)
    click.echo(page)
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


@click.command(epilog=examples("bench serve", "bench serve --out site --port 9000"))
@db_option
@site_option
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
def serve(db: str, out: Path | None, port: int) -> None:
    """Show the built leaderboard at http://127.0.0.1:8000, to this machine only, until Ctrl-C."""
    import functools
    import http.server

    from bench.api import UsageError

    folder = out or site_folder(db)
    if not (folder / "index.html").exists():
        raise UsageError(f"there is no leaderboard in {folder}: 'bench leaderboard' builds one, --out chooses another")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise UsageError(f"port {port} cannot be used ({error.strerror}): choose another with --port") from error
    with server:
        click.echo(f"http://127.0.0.1:{server.server_address[1]}/ shows {folder}; Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("ended", err=True)


def site_folder(db: str) -> Path:
    """Where the site of a database is, unless --out says otherwise."""
    from bench.evaluation import images

    return images.folder_of(db).parent / "leaderboard"


def built(database: Any, db: str, out: Path | None, pictures: int = 1000) -> Path:
    """Builds the site of a database with the pictures that are kept beside it; returns its first page."""
    from bench.evaluation import images
    from bench.evaluation.pictures import KeptPictures
    from leaderboard.build import build

    return build(database, out or site_folder(db), KeptPictures(images.folder_of(db)), pictures)
