"""Takes an import out again: its cells, its files of images, and its weights, where nothing else has them."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import Engine as Database

from bench.api import UsageError
from bench.evaluation import doubts
from bench.exchange import kept_weights, placing
from bench.store import completeness, imports
from bench.store.database import retry_transient, writing
from bench.store.imports import Forgotten, ImportedFile
from bench.support.fingerprint import of_file


def forget(database: Database, db: str, folder: Path, which: str) -> tuple[ImportedFile, Forgotten]:
    """Takes out the import of a file: the file itself, its name, its number, or the beginning of its sha256."""
    placing.clean_up(folder, database)
    chosen = _chosen(imports.found(database), which)
    gone = _forget(database, chosen.id)
    for name in gone.images:
        placing.remove(folder, name)
    kept_weights.release(db, imports.used_weights(database))
    return chosen, gone


@retry_transient
def _forget(database: Database, import_id: int) -> Forgotten:
    with writing(database) as connection:
        gone = imports.forget(connection, import_id)
        for board_id in gone.boards:
            completeness.settle(connection, board_id)
            doubts.put(connection, board_id)
        return gone


def _chosen(there: list[ImportedFile], which: str) -> ImportedFile:
    path = Path(which)
    digest = of_file(path) if path.is_file() else None
    found = [one for one in there if digest is not None and one.sha256 == digest]
    found = found or [one for one in there if which in (one.name, str(one.id), one.sha256)]
    found = found or [one for one in there if len(which) >= 8 and one.sha256.startswith(which)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{len(found)} imports are called '{which}': give the number of one, see 'bench db imports'")
    raise UsageError(f"nothing was imported from '{which}' into this database: 'bench db imports' lists what was")
