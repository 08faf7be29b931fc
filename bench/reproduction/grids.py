"""Tables 1, 2, 3, 5, 6 and 7: engines by sources or defences, each number with the paper's own."""

from __future__ import annotations

import dataclasses

import pandas as pd

from bench import norms
from bench.reproduction import contents, latex
from bench.reproduction.contents import Column, Sizes
from bench.reproduction.results import Results
from bench.store.frames import percent
from leaderboard import paper, words
from leaderboard.tables import TableEntry

CLEAN, KNOWN = "clean", "best_known"
TITLES = {CLEAN: "Clean", KNOWN: "Best Known"}


@dataclasses.dataclass(frozen=True)
class ComparedNumber:
    """A number made here and the paper's, in percent; None where there is none."""

    ours: TableEntry
    published: float | None


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table in one norm; rows are by engine, `clean` and `best_known`."""

    norm: str
    epsilon: float
    columns: list[str]
    rows: dict[str, list[ComparedNumber]]

    @property
    def complete(self) -> bool:
        return not any(pair.ours.missing for row in self.rows.values() for pair in row)


def grids(name: str, sizes: Sizes, results: Results) -> list[Grid]:
    """A table of the paper, one grid per norm."""
    columns = contents.columns(name, sizes)
    measures = [*([CLEAN] if name == "table3" else []), *contents.ENGINES, KNOWN]
    found = []
    for norm in results.norms:
        published = {
            (number.attack, number.defence, number.source): number.accuracy
            for number in paper.numbers()
            if number.where == name and number.norm in (norm, "")
        }
        rows = {
            measure: [
                ComparedNumber(
                    _entry(measure, column, norm, sizes, results),
                    published.get((measure, column.defence, "" if measure == CLEAN else column.published)),
                )
                for column in columns
            ]
            for measure in measures
        }
        boards = [results.board(column.defence, norm) for column in columns]
        epsilon = next((own.board.epsilon for own in boards if own), paper.EPSILONS[norm])
        found.append(Grid(norm, epsilon, [column.title for column in columns], rows))
    return found


def _entry(measure: str, column: Column, norm: str, sizes: Sizes, results: Results) -> TableEntry:
    """A number of a table; empty where this size leaves its sources or its engine out."""
    if not column.sources or (measure in contents.ENGINES and measure not in sizes.engines):
        return TableEntry(None, 0)
    own = results.board(column.defence, norm)
    if own is None:
        return TableEntry(None, 0, unfinished="not run")
    if measure == CLEAN:
        return own.clean()
    return own.known(sizes.engines, column.sources) if measure == KNOWN else own.entry(measure, column.sources)


def frame(found: list[Grid]) -> pd.DataFrame:
    """Every number as a row."""
    rows = []
    for grid in found:
        for measure, pairs in grid.rows.items():
            for column, pair in zip(grid.columns, pairs, strict=True):
                ours = pair.ours
                low, high = words.bounds(ours.count, ours.total) if ours.count is not None else (None, None)
                rows.append(
                    (
                        grid.norm, grid.epsilon, measure, column, ours.count, ours.total or None, percent(ours.share),
                        low and round(low, 2), high and round(high, 2), pair.published, ours.missing,
                        ours.reduced, *map(percent, ours.ends),
                    )
                )  # fmt: skip
    names = [
        "norm",
        "epsilon",
        "attack",
        "column",
        "correct",
        "examples",
        "accuracy",
        "low",
        "high",
        "paper",
        "missing",
        "reduced",
        "least",
        "most",
    ]
    table = pd.DataFrame(rows, columns=names)
    return table.astype({"correct": "Int64", "examples": "Int64"})


def tabular(found: list[Grid], comment: str) -> str:
    """The table in LaTeX: our numbers, the paper's in brackets; a star where cells are missing, a dagger where budgets are
    reduced."""
    parts = [
        [
            [
                norms.named(grid.norm).latex if measure == next(iter(grid.rows)) else "",
                latex.escaped(TITLES.get(measure, measure)),
                *map(_both, pairs),
            ]
            for measure, pairs in grid.rows.items()
        ]
        for grid in found
    ]
    columns = found[0].columns
    return latex.tabular("ll" + "r" * len(columns), ["Norm", "Attack", *map(latex.escaped, columns)], parts, comment)


def _both(pair: ComparedNumber) -> str:
    bounds = pair.ours.bounds
    known = words.share(pair.ours.count, pair.ours.total) if bounds is None else words.between(bounds, pair.ours.total)
    ours = latex.escaped(known)
    marks = ("*" if pair.ours.incomplete else "") + (r"\dagger" if pair.ours.reduced else "")
    return f"{ours}{f'$^{{{marks}}}$' if marks else ''}" + (
        "" if pair.published is None else f" ({pair.published:.2f})"
    )
