"""The leaderboard of a database, with the pictures that are kept beside it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import Engine as Database

from bench.evaluation import images
from bench.evaluation.pictures import KeptPictures
from bench.support.progress import Track, untracked
from leaderboard.build import MOST_PICTURES, build


def folder_of(db: str) -> Path:
    """Where the site of a database is, unless the user says otherwise."""
    return images.folder_of(db).parent / "leaderboard"


def built(
    database: Database, db: str, out: Path | None, track: Track = untracked, pictures: int = MOST_PICTURES
) -> Path:
    """Builds the site of the database that is open from `db`; returns its first page."""
    return build(database, out or folder_of(db), KeptPictures(images.folder_of(db)), pictures, track)
