"""Key searches for tests, as they are stored: a real one takes a classifier that is better than chance."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from bench.store import key_searches, schema
from bench.store.database import opened
from bench.store.key_searches import KeyGuess


def store_found(path: Path, defence: str, key: int, *, inside: bool = True) -> None:
    """A search that has found this key, for the first defended model of this defence in the database."""
    with opened(str(path)) as database:
        with database.connect() as connection:
            query = sa.select(schema.defence.c.id).where(schema.defence.c.name == defence)
            defence_id = connection.execute(query).scalars().first()
        values = {
            "defence_id": defence_id, "dataset": "x", "split": "training" if inside else "test", "n_images": 100,
            "images_sha256": "i", "inside_threat_model": inside, "defended_accuracy": 0.8, "defended_images": 1000,
            "race_floor": 0.75, "race_error": 1e-4, "fingerprint": f"search {defence_id} {inside}",
        }  # fmt: skip
        search = key_searches.start(database, values, "bench keysearch")
        key_searches.record(
            database, search, "bench keysearch", [KeyGuess(key, "random, draw 1", 80, 100, None, 1.0, 1.0)]
        )
        key_searches.confirm(database, search, key, 640, 800)
