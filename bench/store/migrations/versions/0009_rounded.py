"""Images may be judged rounded to eight bits as well; those of before were not, and say so."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("result", sa.Column("rounded", sa.SmallInteger, nullable=True))
    judged = sa.text("rounded IS NOT NULL")
    op.create_index(
        "ix_result_rounded",
        "result",
        ["board_id", "attack_id", "source_id", "correct", "rounded"],
        sqlite_where=judged,
        postgresql_where=judged,
    )
