"""What the page "The paper" lists: every table and figure of the paper, and how those in the site's folder were made.

`bench reproduce` writes them. They are no part of a build's own files: building the site again leaves and lists them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from leaderboard import paper

FOLDER = "paper"


@dataclasses.dataclass(frozen=True)
class Record:
    """How a table or figure was made, as it stands beside its files."""

    preset: str
    made: str
    complete: bool
    examples: int | None
    """Test images of its boards; None if it takes a few of its own."""
    command: str
    differences: Sequence[tuple[str, str, str]]
    """What is not as in the paper: what, here, there. Empty is the paper's protocol."""
    failed: Sequence[str]
    """What could not be run, and why."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A table or figure of the paper, and how it was made here, if it was."""

    name: str
    label: str
    title: str
    record: Record | None
    picture: bool


def items(folder: Path) -> list[Item]:
    """Every table and figure of the paper, with the record of those that were made in this folder."""
    found = []
    for name, title in paper.TITLES.items():
        place = folder / FOLDER / name
        record = _record(place.with_suffix(".json")) if place.with_suffix(".html").exists() else None
        picture = record is not None and place.with_suffix(".svg").exists()
        found.append(Item(name, paper.label(name), title, record, picture))
    return found


def _record(path: Path) -> Record | None:
    """A record as it was written; None if it is not there or of another version."""
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
