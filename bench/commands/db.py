"""`bench db`."""

from __future__ import annotations

import click

from bench.commands.options import db_option, examples, opened
from bench.support.printable import printable


@click.group()
def db() -> None:
    """The database: its schema, and what was imported into it."""


@db.command("upgrade")
@db_option
def db_upgrade(db: str) -> None:
    """Bring an older database to this version's schema."""
    from bench.store.database import HEAD, open_database
    from bench.store.redaction import redacted

    open_database(db, create=False, upgrade=True).dispose()
    click.echo(f"{redacted(db)} has schema {HEAD}")


@db.command("info")
@db_option
def db_info(db: str) -> None:
    """The database's schema version and number of rows."""
    import sqlalchemy as sa

    from bench.store import schema
    from bench.store.database import HEAD
    from bench.store.redaction import redacted

    with opened(db) as database, database.connect() as connection:
        click.echo(f"{redacted(db)}: schema {HEAD}")
        for table in schema.metadata.sorted_tables:
            rows = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar()
            click.echo(f"  {table.name:<13} {rows} rows")


@db.command("imports")
@db_option
def db_imports(db: str) -> None:
    """What was imported, and how much of it is here."""
    from bench.store import imports

    with opened(db) as database:
        for one in imports.found(database):
            digest = f", sha256 {one.sha256[:16]}…" if one.sha256 else ""
            when = f", {one.taken}" if one.taken else ""
            click.echo(printable(f"{one.id}: {one.name}: {one.cells} cells, {one.rows} rows{when}{digest}"))


@db.command("forget", epilog=examples("bench db forget --imported theirs.zip", "bench db forget --imported 2"))
@db_option
@click.option(
    "--imported",
    required=True,
    metavar="FILE",
    help="The file, its name, or its number in 'bench db imports'; the file itself need not be there any more.",
)
def db_forget(db: str, imported: str) -> None:
    """Take an import out again: its cells, images and weights. What is your own, or another import's, stays."""
    from bench.evaluation import images
    from bench.exchange import forgetting

    with opened(db) as database:
        chosen, gone = forgetting.forget(database, db, images.folder_of(db), imported)
    click.echo(
        printable(
            f"{chosen.name}: {gone.cells} cells, {gone.rows} rows and {len(gone.images)} files of images are gone"
        )
    )
