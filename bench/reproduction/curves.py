"""Figure 3, Best Known against the number of surrogates, and Figures 6 to 9, accuracy against a setting of LINAC."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from bench.reproduction import contents
from bench.reproduction.contents import Sizes
from bench.reproduction.results import BoardResults, Results
from bench.store import evidence
from bench.store.best_known import Bounds
from bench.store.frames import percent
from leaderboard import figures, paper, svg, words
from leaderboard.figures import Figure
from leaderboard.svg import Axis, Point, Series
from leaderboard.tables import TableEntry

DASHED = "Dashed: the paper's."
_PAPER_TABLES = {"surrogate": "table5", "reconstruction": "table6"}


def surrogates(sizes: Sizes, results: Results) -> list[Figure]:
    """Figure 3, one chart per norm. Of its curves the paper prints the ends only, Tables 5 and 6: dashed lines join them."""
    found = []
    for norm in results.norms:
        own = results.board(contents.LINAC, norm)
        curves = {kind: _curve(own, kind, sizes) for kind in _PAPER_TABLES} if own else {}
        ends = {kind: _published_ends(kind, norm) for kind in _PAPER_TABLES}
        total = own.board.n_examples if own else 1
        clean = own.board.clean.n_correct if own and own.board.clean else None
        reduced = [engine for engine in sizes.engines if own and own.board.is_reduced(engine)]
        found.append(figures.surrogates(norm, curves, total, clean, ends, reduced))
    return found


def _curve(own: BoardResults, kind: str, sizes: Sizes) -> list[Bounds]:
    """Best Known under the first 1, 2, … surrogates of a kind, as far as their cells are complete."""
    counted, counts = set(own.outcomes.counted), []
    names = contents.members(kind, getattr(sizes, f"{kind}s"))
    for number in range(1, len(names) + 1):
        columns = own.of(sizes.engines, names[:number])
        known = evidence.known_count(own.outcomes, columns) if counted.issuperset(columns) else None
        if known is None:
            break
        counts.append(known)
    return counts


def _published_ends(kind: str, norm: str) -> list[tuple[int, float]]:
    known = {
        number.source: number.accuracy
        for number in paper.numbers()
        if (number.where, number.norm, number.attack) == (_PAPER_TABLES[kind], norm, "best_known")
    }
    ends = [(1, known[f"{kind}:1"]), (contents.KEYS, known[f"{kind}:all"])]
    return [(number, accuracy) for number, accuracy in ends if accuracy is not None]


def sensitivity(name: str, sizes: Sizes, results: Results) -> Figure:
    """Clean accuracy and that under PGD in each norm, against the values of one setting."""
    sweep = contents.SWEEPS[name]
    measures = {"clean": "clean", **{norm: f"PGD, {words.norm(norm)}" for norm in results.norms}}
    ours: dict[str, list[tuple[int, TableEntry]]] = {measure: [] for measure in measures}
    for value, defence in contents.points(name, sizes).items():
        own_boards = {norm: own for norm in results.norms if (own := results.board(defence, norm))}
        for norm, own in own_boards.items():
            ours[norm].append((value, own.entry("pgd", (sizes.sweep_source,))))
        if own_boards:
            ours["clean"].append((value, next(iter(own_boards.values())).clean()))
    published = {measure: _published_points(sweep.symbol, measure) for measure in measures}
    values = sorted({v for row in ours.values() for v, _ in row} | {v for row in published.values() for v, _ in row})
    axis = Axis(f"{sweep.symbol} ({sweep.setting})", values[0], values[-1], [(v, str(v)) for v in values])
    lines = [Series(title, _points(ours[measure])) for measure, title in measures.items()]
    lines += [
        Series(f"{title}, paper", [Point(v, accuracy) for v, accuracy in published[measure]], dashed_from=place)
        for place, (measure, title) in enumerate(measures.items())
    ]
    title = paper.TITLES[name]
    caption = f"PGD from {sizes.sweep_source} on LINAC with this one setting changed. Whiskers: 95 % interval. {DASHED}"
    if budgets := sorted({entry.reduced for row in ours.values() for _, entry in row if entry.reduced}):
        caption += f" On a reduced budget: {'; '.join(budgets)}."
    return Figure(name, title, caption, svg.lines(lines, axis, title=title), _frame(sweep.setting, ours, published))


def _points(entries: Sequence[tuple[int, TableEntry]]) -> list[Point]:
    return [figures.point(value, e.count, e.total) for value, e in entries if e.count is not None]


def _published_points(symbol: str, measure: str) -> list[tuple[int, float]]:
    found = {}
    for number in paper.numbers():
        if (
            number.where == f"sensitivity-{symbol}"
            and (number.norm or "clean") == measure
            and number.accuracy is not None
        ):
            found[int(number.defence.partition("=")[2].rstrip("]"))] = number.accuracy
    return sorted(found.items())


def _frame(
    setting: str, ours: dict[str, list[tuple[int, TableEntry]]], published: dict[str, list[tuple[int, float]]]
) -> pd.DataFrame:
    """A row for every value and measure that is here or in the paper."""
    rows = []
    for measure in ours:
        here, there = dict(ours[measure]), dict(published[measure])
        for value in sorted({*here, *there}):
            entry = here.get(value, TableEntry(None, 0))
            norm, attack = ("", "clean") if measure == "clean" else (measure, "pgd")
            rows.append(
                (
                    setting, value, norm, attack, entry.count, entry.total or None, percent(entry.share),
                    there.get(value), entry.missing, entry.reduced,
                )
            )  # fmt: skip
    names = ["setting", "value", "norm", "attack", "correct", "examples", "accuracy", "paper", "missing", "reduced"]
    return pd.DataFrame(rows, columns=names).astype({"correct": "Int64", "examples": "Int64"})
