"""Guessed keys are confirmed on fresh images; those of before were not, and say so."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    for name in ("fresh_correct", "fresh_images"):
        op.add_column("key_guess", sa.Column(name, sa.Integer, nullable=True))
