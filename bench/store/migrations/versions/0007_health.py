"""What was checked of sources and of attacks on them; of those of before nothing was, and they say so."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("cell", sa.Column("examined_json", sa.Text, nullable=False, server_default="{}"))
    op.create_table(
        "health",
        sa.Column("board_id", sa.Integer, sa.ForeignKey("board.id", name="fk_health_board_id"), nullable=False),
        sa.Column("source_id", sa.Integer, sa.ForeignKey("source.id", name="fk_health_source_id"), nullable=False),
        sa.Column("flags_json", sa.Text, nullable=False),
        sa.Column("examined_json", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("updated", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("board_id", "source_id", name="pk_health"),
    )
