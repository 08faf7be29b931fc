"""Table 4: the best of the guessed keys, beside the paper's ten."""

from __future__ import annotations

import pandas as pd

from leaderboard import paper
from leaderboard.figures import KeySearchSection
from leaderboard.reproduced import latex


def frame(section: KeySearchSection | None) -> pd.DataFrame:
    """A row a place: our guess, by where it came from, and the paper's."""
    best = section.best if section else []
    rows = []
    for place in range(max(len(best), len(paper.BEST_KEYS))):
        origin, accuracy, images = best[place] if place < len(best) else (None, None, None)
        key, published = paper.BEST_KEYS[place] if place < len(paper.BEST_KEYS) else (None, None)
        share = None if accuracy is None else round(100 * accuracy, 2)
        rows.append((place + 1, origin, share, images, str(key), published))
    table = pd.DataFrame(rows, columns=["place", "guess", "accuracy", "images", "paper_key", "paper"])
    return table.astype({"images": "Int64"})


def tabular(table: pd.DataFrame, comment: str) -> str:
    """The table in LaTeX."""
    rows = [
        [str(place), latex.escaped(guess or "–"), _percent(accuracy), key, _percent(published)]
        for place, guess, accuracy, _, key, published in table.itertuples(index=False, name=None)
    ]
    return latex.tabular("rlrrr", ["Place", "Guess", r"Right \%", "The paper's key", r"Right \%"], [rows], comment)


def _percent(value: float | None) -> str:
    return "--" if value is None or pd.isna(value) else f"{value:.2f}"
