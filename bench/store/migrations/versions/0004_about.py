"""What attacks and sources say of themselves, the version of a shard's rows, and no password in a stored command."""

import sqlalchemy as sa
from alembic import op

from bench.store.redaction import redacted_command

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("attack", sa.Column("about_json", sa.Text))
    op.add_column("source", sa.Column("about_json", sa.Text))
    op.add_column("shard", sa.Column("rows_version", sa.Integer))
    op.execute("UPDATE shard SET rows_version = 1 WHERE status = 'done'")
    for name in ("run", "key_search"):
        _redact_commands(sa.table(name, sa.column("id"), sa.column("command")))


def _redact_commands(table: sa.TableClause) -> None:
    connection = op.get_bind()
    for id_, command in connection.execute(sa.select(table.c.id, table.c.command)).all():
        if (safe := redacted_command(command)) != command:
            connection.execute(sa.update(table).where(table.c.id == id_).values(command=safe))
