"""How things are said on the pages: numbers, names, and what each word means."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from bench import norms
from bench.store.best_known import Bounds
from bench.store.frames import percent
from bench.store.queries import Board
from bench.store.schema import SURVIVORS
from bench.support.stats import lost, wilson

IMPORTED = {
    "judged": "made elsewhere, and judged again here, image by image",
    "unjudged": (
        "made elsewhere, and not judged here, as its images, its weights or its key are not here: counts towards nothing"
    ),
}


def share(count: int | None, total: int) -> str:
    """A count of examples as percent, rounded as `bench results` does."""
    return "–" if count is None or not total else f"{percent(count / total):.2f}"


def between(bounds: Bounds, total: int) -> str:
    """Two counts of examples as percent, of what is known only to lie between them."""
    return f"{100 * bounds.least / total:.1f}–{100 * bounds.most / total:.1f}"


def shown(broken: int, count: int) -> str:
    """What became of the examples that an attack was shown, where that were only those that others had left."""
    if not count:
        return nothing_left(1)
    return f"broke {broken:,} of the {plural(count, 'example')} that it was shown; the others were broken before"


def nothing_left(cells: int) -> str:
    """Why nothing at all is known of so many cells."""
    return f"nothing was left for {'it' if cells == 1 else f'these {cells} cells'}: all examples were broken before"


def strongest(board: Board, found: tuple[str, int] | None) -> str:
    """The strategy that leaves the fewest examples right by itself, or why none is named."""
    if found is not None:
        return found[0]
    return "not known" if board.scope == SURVIVORS and board.counted else "–"


def interval(count: int | None, total: int) -> str:
    """The 95 % Wilson interval in percent."""
    if count is None or not total:
        return ""
    low, high = wilson(count, total)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def points(before: int, after: int, total: int) -> str:
    """How far a share falls when some of the same examples are lost, in points of percent."""
    return f"{percent((before - after) / total):.2f}"


def points_interval(before: int, after: int, total: int) -> str:
    """The 95 % interval of that, over the shared examples."""
    low, high = lost(before, after, total)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def bounds(count: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson interval as two percentages."""
    low, high = wilson(count, total)
    return 100 * low, 100 * high


def epsilon(value: float) -> str:
    """8/255 where it is a whole number of grey levels below 255, else the number."""
    levels = value * 255
    return f"{round(levels)}/255" if 1 <= levels < 255 and abs(levels - round(levels)) < 1e-9 else f"{value:g}"


def settings(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def norm(name: str) -> str:
    """What people read for a norm."""
    return norms.label(name)


def thousands(count: int) -> str:
    return f"{count:,}"


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


STRONGEST_UNKNOWN = "not known, as one strategy's attacks were shown only what those of another had left"


def on_reduced(fewer: int, cells: int) -> str:
    """How many of the cells behind a number try less than they were published with; nothing where none does."""
    return f"{fewer} of {plural(cells, 'cell')} on reduced budgets" if fewer else ""


def known_on_reduced(board: Board) -> str:
    """The same of a board's Best Known."""
    return on_reduced(len(board.reduced), len(board.counted))


def slug(name: str, *identity: Any) -> str:
    """A file name for something of any name: readable, safe, and its own by a digest of what it is."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    digest = hashlib.sha256(repr((name, *identity)).encode()).hexdigest()[:8]
    return f"{readable}-{digest}" if readable else digest
