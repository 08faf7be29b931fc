"""`bench db`."""

from __future__ import annotations

import click

from bench.commands.options import db_option, opened


@click.group()
def db() -> None:
    """The database: its schema."""


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
            click.echo(f"  {table.name:<10} {rows} rows")
