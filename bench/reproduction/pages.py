"""The files of a reproduced table or figure in the site's folder, and what the page "The paper" lists of them.

They are no part of a build's own files: building the site again leaves them, and lists them anew.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.reproduction import contents, grids
from bench.reproduction.making import Made
from leaderboard import paper, rendering
from leaderboard.output import Folder

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


def write(
    folder: Path,
    made: Made,
    *,
    preset: str,
    examples: int | None,
    command: str,
    differences: Sequence[tuple[str, str, str]],
    failed: Sequence[str],
) -> Path:
    """Writes its page, CSV and record, LaTeX of a table, SVG of a figure; returns the page."""
    site, place = Folder(folder), f"{FOLDER}/{made.name}"
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = Record(preset, now, made.complete and not failed, examples, command, differences, failed)
    label, title = contents.label(made.name), contents.TITLES[made.name]
    comment = f"{label}, {title}; made by bench, preset {preset}; in brackets: {paper.CITATION}"
    files = {"csv": made.data.to_csv(index=False), "tex": made.latex(comment), "svg": made.svg()}
    for kind, text in files.items():
        if text is not None:
            site.text(f"{place}.{kind}", text)
    site.text(f"{place}.json", json.dumps(dataclasses.asdict(record), indent=1, ensure_ascii=False))
    template = rendering.environment().get_template("reproduced.html")
    page = template.render(
        root="../",
        made=made,
        label=label,
        title=title,
        record=record,
        files=[kind for kind, text in files.items() if text is not None],
        row_titles=grids.TITLES,
    )
    return site.text(f"{place}.html", page)


def items(folder: Path) -> list[Item]:
    """Every table and figure of the paper, with the record of those that were made in this folder."""
    found = []
    for name in contents.NAMES:
        place = folder / FOLDER / name
        record = _record(place.with_suffix(".json")) if place.with_suffix(".html").exists() else None
        picture = record is not None and place.with_suffix(".svg").exists()
        found.append(Item(name, contents.label(name), contents.TITLES[name], record, picture))
    return found


def _record(path: Path) -> Record | None:
    """A record as it was written; None if it is not there or of another version."""
    try:
        fields: Mapping[str, Any] = json.loads(path.read_text())
        return Record(**fields)
    except (OSError, ValueError, TypeError):
        return None
