"""`bench export`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import db_option, examples, opened


@click.command(epilog=examples("bench export mine.zip", "bench export mine.zip --with-weights"))
@click.argument("file", type=click.Path(path_type=Path))
@db_option
@click.option("--with-weights", is_flag=True, help="Put the defended classifiers in too, so that others can judge.")
def export(file: Path, db: str, with_weights: bool) -> None:
    """Pack all finished results, with their adversarial images, into one file for somebody else's leaderboard."""
    from bench.evaluation import images
    from bench.exchange import exporting
    from bench.support.progress import Reporter

    with opened(db) as database:
        cells, rows = exporting.export(database, images.folder_of(db), file, with_weights, Reporter().track)
    click.echo(f"{file}: {cells} cells, {rows} rows, {file.stat().st_size / 2**20:.1f} MiB")
