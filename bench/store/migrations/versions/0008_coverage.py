"""Boards say which cells they must have, and sets of examples what they begin with; those of before do not."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("board", sa.Column("required_json", sa.Text, nullable=True))
    op.create_table(
        "example_set",
        sa.Column("examples_sha256", sa.String(64), nullable=False),
        sa.Column("digests", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("examples_sha256"),
    )
