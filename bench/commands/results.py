"""`bench results`."""

from __future__ import annotations

import click

from bench.commands.options import db_option, examples, format_option, opened
from bench.support.printable import printable, printable_json


@click.command(
    epilog=examples(
        "bench results", "bench results --format csv --what boards", "bench results --format json > cells.json"
    )
)
@db_option
@format_option
@click.option(
    "--what",
    type=click.Choice(["cells", "boards", "sources", "health"]),
    default="cells",
    show_default=True,
    help="Rows of csv and json; sources says how the attacks did on the models they attacked, health what was checked "
    "of those models.",
)
def results(db: str, form: str, what: str) -> None:
    """The stored results: tables for people, csv and json for programs."""
    from bench.store import on_sources, queries

    with opened(db) as database:
        boards = queries.boards(database)
        withstood = on_sources.withstood(database) if what == "sources" and form != "table" else {}
    if form == "table":
        from rich.console import Console

        from bench.evaluation.report import print_boards

        print_boards(boards, Console())
        return
    from bench.store import frames

    if what == "sources":
        frame = frames.sources_frame(boards, withstood)
    else:
        made = {"cells": frames.cells_frame, "boards": frames.boards_frame, "health": frames.health_frame}
        frame = made[what](boards)
    if form == "csv":
        click.echo(printable(frame.to_csv(index=False)), nl=False)
    else:
        click.echo(printable_json(frame.to_json(orient="records", indent=1, force_ascii=False)))
