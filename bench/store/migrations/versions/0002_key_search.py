"""Key searches and their guesses."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "key_search",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("defence_id", sa.Integer, sa.ForeignKey("defence.id"), nullable=False),
        sa.Column("dataset", sa.String(200), nullable=False),
        sa.Column("split", sa.String(10), nullable=False),
        sa.Column("n_images", sa.Integer, nullable=False),
        sa.Column("images_sha256", sa.String(64), nullable=False),
        sa.Column("inside_threat_model", sa.Boolean, nullable=False),
        sa.Column("defended_accuracy", sa.Float, nullable=False),
        sa.Column("defended_images", sa.Integer, nullable=False),
        sa.Column("race_floor", sa.Float, nullable=False),
        sa.Column("race_error", sa.Float, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("started", sa.String(32), nullable=False),
        sa.Column("updated", sa.String(32), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False, unique=True),
    )
    op.create_table(
        "key_guess",
        sa.Column("search_id", sa.Integer, sa.ForeignKey("key_search.id"), nullable=False),
        sa.Column("guess", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("origin", sa.String(200), nullable=False),
        sa.Column("correct", sa.Integer, nullable=False),
        sa.Column("images", sa.Integer, nullable=False),
        sa.Column("stopped", sa.Integer),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("raced_seconds", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("search_id", "guess"),
        sqlite_with_rowid=False,
    )
