"""Cells may be run on what still stands: a shard lists its examples, a cell has a scope, a run the order of its cells."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("shard", sa.Column("examples_json", sa.Text, nullable=True))
    op.add_column("cell", sa.Column("scope", sa.String(10), nullable=False, server_default="all"))
    op.add_column("run", sa.Column("order_json", sa.Text, nullable=True))
