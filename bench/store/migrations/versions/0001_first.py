"""The first schema."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _thing(name: str, *columns: sa.Column[Any]) -> None:
    op.create_table(
        name,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("version", sa.String(50), nullable=False),
        sa.Column("params_json", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False, unique=True),
        *columns,
    )


def _cell_key(foreign: bool) -> list[sa.Column[Any]]:
    return [
        sa.Column(f"{name}_id", sa.Integer, *([sa.ForeignKey(f"{name}.id")] if foreign else []), nullable=False)
        for name in ("board", "attack", "source")
    ]


def upgrade() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("started", sa.String(32), nullable=False),
        sa.Column("finished", sa.String(32)),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("preset", sa.String(50), nullable=False),
        sa.Column("spec_json", sa.Text, nullable=False),
        sa.Column("versions_json", sa.Text, nullable=False),
        sa.Column("device", sa.String(200), nullable=False),
        sa.Column("git_commit", sa.String(64)),
    )
    _thing(
        "defence",
        sa.Column("keyed", sa.Boolean, nullable=False),
        sa.Column("key_id", sa.String(64)),
        sa.Column("weights_sha256", sa.String(64), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
    )
    _thing("attack")
    _thing("source")
    op.create_table(
        "board",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("defence_id", sa.Integer, sa.ForeignKey("defence.id"), nullable=False),
        sa.Column("dataset", sa.String(200), nullable=False),
        sa.Column("examples_sha256", sa.String(64), nullable=False),
        sa.Column("norm", sa.String(10), nullable=False),
        sa.Column("epsilon", sa.Float, nullable=False),
        sa.Column("n_examples", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False, unique=True),
    )
    op.create_index("ix_board_defence", "board", ["defence_id"])
    op.create_table(
        "cell",
        *_cell_key(foreign=True),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("run.id"), nullable=False),
        sa.Column("strategy", sa.String(50), nullable=False),
        sa.Column("inside_threat_model", sa.Boolean, nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("n_done", sa.Integer, nullable=False),
        sa.Column("n_correct", sa.Integer, nullable=False),
        sa.Column("gradients", sa.BigInteger, nullable=False),
        sa.Column("queries", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("flags_json", sa.Text, nullable=False),
        sa.Column("doubts_json", sa.Text, nullable=False),
        sa.Column("parts_json", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("updated", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("board_id", "attack_id", "source_id"),
    )
    op.create_table(
        "shard",
        *_cell_key(foreign=False),
        sa.Column("start", sa.Integer, nullable=False),
        sa.Column("stop", sa.Integer, nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(100), nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("images_file", sa.Text),
        sa.Column("images_sha256", sa.String(64)),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("board_id", "attack_id", "source_id", "start", "stop"),
        sa.ForeignKeyConstraint(
            ["board_id", "attack_id", "source_id"], ["cell.board_id", "cell.attack_id", "cell.source_id"]
        ),
    )
    op.create_table(
        "result",
        sa.Column("board_id", sa.Integer, sa.ForeignKey("board.id"), nullable=False),
        sa.Column("example_idx", sa.Integer, nullable=False),
        sa.Column("attack_id", sa.Integer, sa.ForeignKey("attack.id"), nullable=False),
        sa.Column("source_id", sa.Integer, sa.ForeignKey("source.id"), nullable=False),
        sa.Column("correct", sa.SmallInteger, nullable=False),
        sa.Column("pred", sa.SmallInteger, nullable=False),
        sa.Column("label", sa.SmallInteger, nullable=False),
        sa.Column("margin", sa.Float, nullable=False),
        sa.Column("distance", sa.Float, nullable=False),
        sa.Column("source_success", sa.SmallInteger, nullable=False),
        sa.Column("source_margin", sa.Float, nullable=False),
        sa.Column("restart", sa.SmallInteger, nullable=False),
        sa.Column("target", sa.SmallInteger, nullable=False),
        sa.Column("part", sa.SmallInteger, nullable=False),
        sa.Column("gradients", sa.Integer, nullable=False),
        sa.Column("queries", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("board_id", "example_idx", "attack_id", "source_id"),
        sqlite_with_rowid=False,
    )
