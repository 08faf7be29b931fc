"""Which import brought what; imported cells whose images did not come along were never judged, and say so now."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
CELL = ("board_id", "attack_id", "source_id")


def upgrade() -> None:
    op.create_table(
        "imported_file",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("taken", sa.String(32), nullable=False),
    )
    op.create_table(
        "imported_row",
        sa.Column("import_id", sa.Integer, sa.ForeignKey("imported_file.id"), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("row_id", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("import_id", "kind", "row_id"),
    )
    op.create_table(
        "imported_cell",
        *(sa.Column(name, sa.Integer, nullable=False) for name in CELL),
        sa.Column("import_id", sa.Integer, sa.ForeignKey("imported_file.id"), nullable=False),
        sa.PrimaryKeyConstraint(*CELL),
        sa.ForeignKeyConstraint(CELL, [f"cell.{name}" for name in CELL]),
    )
    op.execute(
        "UPDATE cell SET imported = 'unjudged' WHERE imported = 'judged' "
        "AND attack_id NOT IN (SELECT id FROM attack WHERE name = 'clean') AND EXISTS (SELECT 1 FROM shard "
        "WHERE shard.board_id = cell.board_id AND shard.attack_id = cell.attack_id "
        "AND shard.source_id = cell.source_id AND shard.status = 'done' AND shard.images_file IS NULL)"
    )
    _keep_what_is_known()


def _keep_what_is_known() -> None:
    """What was imported before is one import without a file: of its rows, only the cells and runs are known."""
    connection = op.get_bind()
    if connection.execute(sa.text("SELECT 1 FROM cell WHERE imported IS NOT NULL LIMIT 1")).first() is None:
        return
    connection.execute(
        sa.text("INSERT INTO imported_file (id, name, sha256, taken) VALUES (1, 'before schema 0005', '', '')")
    )
    connection.execute(
        sa.text(
            "INSERT INTO imported_cell (board_id, attack_id, source_id, import_id) "
            "SELECT board_id, attack_id, source_id, 1 FROM cell WHERE imported IS NOT NULL"
        )
    )
    connection.execute(
        sa.text(
            "INSERT INTO imported_row (import_id, kind, row_id) SELECT 1, 'run', id FROM run "
            "WHERE command LIKE 'imported: %'"
        )
    )
    if connection.dialect.name == "postgresql":  # its counter does not see ids that are given
        connection.execute(sa.text("SELECT setval(pg_get_serial_sequence('imported_file', 'id'), 1)"))
