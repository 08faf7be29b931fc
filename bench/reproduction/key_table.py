"""Table 4: the best of the guessed keys, beside the paper's ten."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import pandas as pd

from bench.reproduction import latex
from leaderboard import paper
from leaderboard.figures import KeySearchSection


@dataclasses.dataclass(frozen=True)
class GuessRow:
    """A place of the table: our guess, by where it came from, and the paper's key; shares are in percent."""

    place: int
    guess: str | None
    accuracy: float | None
    images: int | None
    paper_key: str | None
    paper: float | None


def rows(section: KeySearchSection | None) -> list[GuessRow]:
    """As many places as there are guesses here or keys in the paper."""
    found = []
    for place, (ours, theirs) in enumerate(itertools.zip_longest(section.best if section else (), paper.BEST_KEYS), 1):
        origin, accuracy, images = ours or (None, None, None)
        key, published = theirs or (None, None)
        share = None if accuracy is None else round(100 * accuracy, 2)
        found.append(GuessRow(place, origin, share, images, None if key is None else str(key), published))
    return found


def frame(table: Sequence[GuessRow]) -> pd.DataFrame:
    return pd.DataFrame(list(map(dataclasses.asdict, table))).astype({"images": "Int64"})


def tabular(table: Sequence[GuessRow], comment: str) -> str:
    """The table in LaTeX."""
    cells = [
        [str(r.place), latex.escaped(r.guess or "–"), _percent(r.accuracy), r.paper_key or "--", _percent(r.paper)]
        for r in table
    ]
    return latex.tabular("rlrrr", ["Place", "Guess", r"Right \%", "The paper's key", r"Right \%"], [cells], comment)


def _percent(value: float | None) -> str:
    return "--" if value is None else f"{value:.2f}"
