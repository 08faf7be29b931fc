"""A table or figure of the paper, made again: its numbers, charts and files, from stored results or from drawings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pandas as pd

from bench.reproduction import contents, curves, grids, key_table
from bench.reproduction.contents import Sizes
from bench.reproduction.grids import Grid
from bench.reproduction.results import Results
from leaderboard import figures, svg
from leaderboard.figures import Figure, KeySearchSection


@dataclasses.dataclass(frozen=True)
class Reproduced:
    """A table or figure of the paper, made again."""

    name: str
    data: pd.DataFrame
    complete: bool
    grids: Sequence[Grid] = ()
    keys: Sequence[key_table.GuessRow] = ()
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


def from_results(name: str, sizes: Sizes, results: Results) -> Reproduced:
    """One that is counted from stored results: a table, the key search's figure, the curves."""
    if name in contents.GRIDS:
        found = grids.grids(name, sizes, results)
        return Reproduced(name, grids.frame(found), all(grid.complete for grid in found), grids=found)
    if name in contents.KEY_SEARCH:
        section = figures.key_search_section(results.search)
        complete = section is not None and len(section.search.guesses) >= sizes.guesses
        if name == "table4":
            table = key_table.rows(section)
            return Reproduced(name, key_table.frame(table), complete, keys=table, search=section)
        charts = [section.figure] if section else []
        return Reproduced(name, joined(charts), complete, figures=charts, search=section)
    if name == contents.CURVE:
        charts = curves.surrogates(sizes, results)
        wanted = len(results.norms) * (sizes.surrogates + sizes.reconstructions)
        data = joined(charts)
        return Reproduced(name, data, int(data["correct"].notna().sum()) == wanted, figures=charts)
    figure = curves.sensitivity(name, sizes, results)
    wanted = (1 + len(results.norms)) * len(contents.points(name, sizes))
    return Reproduced(name, figure.data, int(figure.data["correct"].notna().sum()) == wanted, figures=[figure])


def from_figures(name: str, charts: Sequence[Figure]) -> Reproduced:
    """One that the gallery drew, without any stored result."""
    return Reproduced(name, joined(charts), True, figures=charts)


def joined(charts: Sequence[Figure]) -> pd.DataFrame:
    """The data of several figures; with more than one, which row is of which."""
    if len(charts) == 1:
        return charts[0].data
    parts = [figure.data.assign(figure=figure.name) for figure in charts]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
