"""`bench serve`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import db_option, examples, site_option
from bench.errors import UsageError


@click.command(epilog=examples("bench serve", "bench serve --out site --port 9000"))
@db_option
@site_option
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
def serve(db: str, out: Path | None, port: int) -> None:
    """Show the built leaderboard at http://127.0.0.1:8000, to this machine only, until Ctrl-C."""
    import functools
    import http.server

    from bench import site
    from bench.support.file_server import FilesOfFolder

    folder = out or site.folder_of(db)
    if not (folder / "index.html").exists():
        raise UsageError(f"there is no leaderboard in {folder}: 'bench leaderboard' builds one, --out chooses another")
    handler = functools.partial(FilesOfFolder, directory=str(folder.resolve()))
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
