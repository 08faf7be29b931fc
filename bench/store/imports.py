"""Which import brought which rows and cells, so that it can be taken out again, and nothing else with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import schema, writer
from bench.store.writer import CellKey

KINDS = {"run": schema.run, "board": schema.board, "attack": schema.attack, "source": schema.source,
         "defence": schema.defence}  # fmt: skip
"""The tables whose rows an import may make; a board goes before its defence."""


@dataclasses.dataclass(frozen=True)
class ImportedFile:
    """An import as it is stored, and what is left of it."""

    id: int
    name: str
    sha256: str
    taken: str
    cells: int
    rows: int


@dataclasses.dataclass(frozen=True)
class Forgotten:
    """What went with an import."""

    cells: int
    rows: int
    images: tuple[str, ...]
    """Files that no shard has any more, by their names in the folder of images."""
    boards: tuple[int, ...]
    """Boards that lost cells and are still there."""


def begin(connection: Connection, name: str, sha256: str) -> int:
    """The id of the import of this file."""
    table = schema.imported_file
    found = connection.execute(sa.select(table.c.id).where(table.c.sha256 == sha256)).scalar()
    if found is not None:
        return int(found)
    return writer.new_id(connection, sa.insert(table).values(name=name[:255], sha256=sha256, taken=writer.now()))


def made_row(connection: Connection, import_id: int, kind: str, row_id: int) -> None:
    """Notes that an import made a row of `run`, `defence`, `attack`, `source` or `board`."""
    values = {"import_id": import_id, "kind": kind, "row_id": row_id}
    connection.execute(writer.insert_if_absent(connection, schema.imported_row).values(**values))


def made_cell(connection: Connection, import_id: int, key: CellKey) -> None:
    """Notes that a cell and all its rows are of an import."""
    connection.execute(sa.insert(schema.imported_cell).values(**writer.ids(key), import_id=import_id))


def found(database: Database) -> list[ImportedFile]:
    """Every import, in the order they came."""
    file, cell, own = schema.imported_file, schema.cell.c, schema.imported_cell.c
    of_file = sa.and_(own.board_id == cell.board_id, own.attack_id == cell.attack_id, own.source_id == cell.source_id)
    counted = (
        sa.select(own.import_id, sa.func.count().label("cells"), sa.func.sum(cell.n_done).label("rows"))
        .join(schema.cell, of_file)
        .group_by(own.import_id)
        .subquery()
    )
    query = sa.select(file, counted.c.cells, counted.c.rows).outerjoin(counted, counted.c.import_id == file.c.id)
    with database.connect() as connection:
        return [
            ImportedFile(row.id, row.name, row.sha256, row.taken, int(row.cells or 0), int(row.rows or 0))
            for row in connection.execute(query.order_by(file.c.id))
        ]


def forget(connection: Connection, import_id: int) -> Forgotten:
    """Takes an import out: its cells, and the rows it made that nothing else refers to."""
    own = schema.imported_cell.c
    query = sa.select(own.board_id, own.attack_id, own.source_id).where(own.import_id == import_id)
    keys: list[CellKey] = [(row[0], row[1], row[2]) for row in connection.execute(query)]
    images: set[str] = set()
    rows = 0
    for key in keys:
        images |= images_of(connection, key)
        counted = sa.select(sa.func.count()).select_from(schema.result).where(writer.of_cell(schema.result, key))
        rows += int(connection.execute(counted).scalar_one())
        writer.delete_results(connection, key)
        connection.execute(sa.delete(schema.cell).where(writer.of_cell(schema.cell, key)))
    _forget_health(connection)
    _forget_rows(connection, import_id)
    connection.execute(sa.delete(schema.imported_file).where(schema.imported_file.c.id == import_id))
    left = {row_id for (row_id,) in connection.execute(sa.select(schema.board.c.id))}
    boards = tuple(sorted({key[0] for key in keys} & left))
    return Forgotten(len(keys), rows, tuple(sorted(images - used_images(connection, images))), boards)


def images_of(connection: Connection, key: CellKey) -> set[str]:
    """The files of images that the shards of a cell have."""
    query = sa.select(schema.shard.c.images_file).where(writer.of_cell(schema.shard, key))
    return {name for (name,) in connection.execute(query) if name}


def used_images(connection: Connection, names: Collection[str]) -> set[str]:
    """Which of these files of images some shard has."""
    if not names:
        return set()
    query = sa.select(schema.shard.c.images_file).where(schema.shard.c.images_file.is_not(None))
    return {name for (name,) in connection.execute(query)} & set(names)


def used_weights(database: Database) -> set[str]:
    """The digests of all weights that a defence in this database was judged with."""
    with database.connect() as connection:
        return {digest for (digest,) in connection.execute(sa.select(schema.defence.c.weights_sha256))}


def _forget_health(connection: Connection) -> None:
    """Removes what was checked of sources that no cell of their board has any more."""
    health, cell = schema.health.c, schema.cell.c
    left = sa.exists().where(cell.board_id == health.board_id, cell.source_id == health.source_id)
    connection.execute(sa.delete(schema.health).where(~left))


def _forget_rows(connection: Connection, import_id: int) -> None:
    """Removes what an import made, unless something refers to it: then it is another import's from here on, or one's own."""
    made = schema.imported_row
    noted = {(kind, row_id) for kind, row_id in connection.execute(
        sa.select(made.c.kind, made.c.row_id).where(made.c.import_id == import_id)
    )}  # fmt: skip
    connection.execute(sa.delete(made).where(made.c.import_id == import_id))
    for kind, table in KINDS.items():
        for row_id in sorted(row_id for own, row_id in noted if own == kind):
            if not _referred(connection, kind, row_id):
                connection.execute(sa.delete(table).where(table.c.id == row_id))
            elif (heir := _heir(connection, kind, row_id)) is not None:
                made_row(connection, heir, kind, row_id)


def _referred(connection: Connection, kind: str, row_id: int) -> bool:
    columns = (
        [schema.board.c.defence_id, schema.key_search.c.defence_id]
        if kind == "defence"
        else [schema.cell.c[f"{kind}_id"]]
    )
    return any(connection.execute(sa.select(column).where(column == row_id).limit(1)).first() for column in columns)


def _heir(connection: Connection, kind: str, row_id: int) -> int | None:
    """An import that has a cell with this row."""
    own, cell = schema.imported_cell.c, schema.cell.c
    column = schema.board.c.defence_id if kind == "defence" else cell[f"{kind}_id"]
    query = (
        sa.select(own.import_id)
        .join(
            schema.cell,
            sa.and_(own.board_id == cell.board_id, own.attack_id == cell.attack_id, own.source_id == cell.source_id),
        )
        .join(schema.board, cell.board_id == schema.board.c.id)
        .where(column == row_id)
        .limit(1)
    )
    return connection.execute(query).scalar()
