"""Shards claimed by lease, a digest of every shard's rows, and where a cell's results come from."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("shard", sa.Column("owner", sa.String(200)))
    op.add_column("shard", sa.Column("expires", sa.Float))
    op.add_column("shard", sa.Column("rows_sha256", sa.String(64)))
    op.add_column("cell", sa.Column("imported", sa.String(20)))
