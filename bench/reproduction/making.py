"""From what is stored to a table or figure of the paper, ready to be written: its numbers, charts and files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pandas as pd

from bench.reproduction import contents, curves, grids, key_table
from bench.reproduction.contents import Sizes
from bench.reproduction.grids import Grid
from bench.reproduction.stored import Stored
from leaderboard import figures, svg
from leaderboard.figures import Figure, KeySearchSection


@dataclasses.dataclass(frozen=True)
class Made:
    """A table or figure of the paper, made again."""

    name: str
    data: pd.DataFrame
    complete: bool
    grids: Sequence[Grid] = ()
    keys: Sequence[key_table.Row] = ()
    search: KeySearchSection | None = None
    figures: Sequence[Figure] = ()

    def svg(self) -> str | None:
        """Its charts as one file."""
        return svg.stacked([figure.chart for figure in self.figures]) if self.figures else None

    def latex(self, comment: str) -> str | None:
        """A table in LaTeX."""
        if self.grids:
            return grids.tabular(list(self.grids), comment)
        return key_table.tabular(self.keys, comment) if self.keys else None


def make(name: str, sizes: Sizes, stored: Stored) -> Made:
    """One that is made of stored results: a table, the key search's figure, the curves."""
    if name in contents.GRIDS:
        found = grids.grids(name, sizes, stored)
        return Made(name, grids.frame(found), all(grid.complete for grid in found), grids=found)
    if name in contents.KEY_SEARCH:
        section = figures.key_search_section(stored.search)
        complete = section is not None and len(section.search.guesses) >= sizes.guesses
        if name == "table4":
            table = key_table.rows(section)
            return Made(name, key_table.frame(table), complete, keys=table, search=section)
        shown = [section.figure] if section else []
        return Made(name, joined(shown), complete, figures=shown, search=section)
    if name == contents.CURVE:
        shown = curves.surrogates(sizes, stored)
        wanted = len(stored.norms) * (sizes.surrogates + sizes.reconstructions)
        data = joined(shown)
        return Made(name, data, int(data["correct"].notna().sum()) == wanted, figures=shown)
    figure = curves.sensitivity(name, sizes, stored)
    wanted = (1 + len(stored.norms)) * len(contents.points(name, sizes))
    return Made(name, figure.data, int(figure.data["correct"].notna().sum()) == wanted, figures=[figure])


def drawn(name: str, shown: Sequence[Figure]) -> Made:
    """One that was drawn without any stored result."""
    return Made(name, joined(shown), True, figures=shown)


def joined(shown: Sequence[Figure]) -> pd.DataFrame:
    """The data of several figures; with more than one, which row is of which."""
    if len(shown) == 1:
        return shown[0].data
    parts = [figure.data.assign(figure=figure.name) for figure in shown]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
