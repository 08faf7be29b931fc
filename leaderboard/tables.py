"""The tables of the pages as plain rows: the ranking, the engine × source matrix, the strategies, who breaks what."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import pandas as pd

from bench.store import evidence
from bench.store.best_known import Bounds
from bench.store.frames import percent
from bench.store.outcomes import Outcomes
from bench.store.queries import Board, Cell
from bench.store.schema import UNJUDGED
from leaderboard import paper, words


@dataclasses.dataclass(frozen=True)
class TableEntry:
    """One number of a table: examples left right of a total, and what must be said with it."""

    count: int | None
    total: int
    bounds: Bounds | None = None  # of a count that is not known: some attack was shown only what others had left
    explained: str = ""  # says why only the bounds are known
    unfinished: str = ""  # says how far a cell is that counts towards nothing
    incomplete: str = ""  # says what is left out of a union
    reduced: str = ""  # says what is tried less than was published
    doubts: dict[str, str] = dataclasses.field(default_factory=dict)
    cell: Cell | None = None

    @property
    def share(self) -> float | None:
        return None if self.count is None or not self.total else self.count / self.total

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The shares that it lies between: twice itself if it is known."""
        if self.bounds is None or not self.total:
            return self.share, self.share
        return self.bounds.least / self.total, self.bounds.most / self.total

    @property
    def nothing_left(self) -> bool:
        """Whether nothing at all is known, for no example was left."""
        return self.bounds is not None and (self.bounds.least, self.bounds.most) == (0, self.total)

    @property
    def missing(self) -> str:
        """What keeps it from being a number over all that it should be over; nothing if it is one."""
        return self.unfinished or self.incomplete or (self.bounds and self.explained) or ""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows by name, columns by name, with a last row and column over all of them."""

    columns: list[str]
    rows: list[tuple[str, list[TableEntry]]]
    total_column: str | None = None
    total_row: tuple[str, list[TableEntry]] | None = None

    def frame(self, first: str) -> pd.DataFrame:
        """The table as it stands, accuracies in percent."""
        rows = [*self.rows, *([self.total_row] if self.total_row else [])]
        names = [first, *self.columns, *([self.total_column] if self.total_column else [])]
        bounded = [place for place in range(len(names) - 1) if any(entries[place].bounds for _, entries in rows)]
        found = [
            [
                name,
                *(percent(one.share) for one in entries),
                _named(names[1:], (bool(one.reduced) for one in entries)),
                _named(names[1:], (one.bounds is not None for one in entries)),
                *(percent(end) for place in bounded for end in entries[place].ends),
            ]
            for name, entries in rows
        ]
        ends = [f"{names[1 + place]} {end}" for place in bounded for end in ("least", "most")]
        return pd.DataFrame(found, columns=[*names, "reduced", "bounded", *ends])


def _named(names: Iterable[str], chosen: Iterable[bool]) -> str:
    """The columns of which something is so."""
    return ", ".join(name for name, one in zip(names, chosen, strict=True) if one)


def ranked(places: Iterable[tuple[str, int]]) -> list[str]:
    """Names with their places in tables, each once and in order; those of one place by name, and by their number."""
    known = dict(places)
    return sorted(known, key=lambda name: (known[name], evidence.family(name) or (name, 0)))


def matrix(board: Board, outcomes: Outcomes, *, inside: bool = True, only: str | None = None) -> Table | None:
    """Engines × sources as in the paper's Tables 1 and 7; families of sources are one column each.

    Where an engine attacked a source with several settings, what is right under all of them.

    With `only`, the members of that family by themselves, as in Tables 5 and 6.
    """
    cells = outcomes.cells
    chosen = [i for i, c in enumerate(cells) if c.attack != "clean" and c.inside_threat_model == inside]
    if only is not None:
        chosen = [i for i in chosen if (evidence.family(cells[i].source) or ("", 0))[0] == only]
    if not chosen:
        return None
    grouped = evidence.families(cells[i] for i in chosen) if inside and only is None else {}
    family_of = {member: name for name, members in grouped.items() for member in members}
    names = evidence.distinct({cells[i].source_id: cells[i].source for i in chosen})

    def column_of(column: int) -> str:
        return family_of.get(cells[column].source) or names[cells[column].source_id]

    columns = ranked((column_of(i), cells[i].source_about.place) for i in chosen)
    rows = []
    for name in _engines(cells[i] for i in chosen):
        own = [i for i in chosen if cells[i].attack == name]
        entries = [
            entry(board, outcomes, [i for i in own if column_of(i) == column], joint=column in grouped)
            for column in columns
        ]
        rows.append((name, [*entries, union(board, outcomes, own)] if inside else entries))
    titles = [f"{column}:1–{len(grouped[column])}" if column in grouped else column for column in columns]
    if not inside:
        return Table(titles, rows)
    last = [known(board, outcomes, [i for i in chosen if column_of(i) == column]) for column in columns]
    return Table(titles, rows, "Best Adversary", ("Best Known", [*last, known(board, outcomes, chosen)]))


def strategies(board: Board, outcomes: Outcomes) -> Table | None:
    """Engines × strategies as in the paper's Table 2."""
    cells = outcomes.cells
    chosen = [i for i, c in enumerate(cells) if c.attack != "clean" and c.inside_threat_model]
    if not chosen:
        return None
    labels = evidence.strategies(cells[i] for i in chosen)
    groups = {label: [i for i in chosen if cells[i].strategy == name] for name, (label, _) in labels.items()}
    if len(labels) > 2 and set(paper.SOURCE_MODELS) <= set(labels):
        groups[paper.SOURCE_MODELS_TITLE] = [i for i in chosen if cells[i].strategy in paper.SOURCE_MODELS]
    if len(labels) > 1:
        groups["All"] = chosen
    rows = [
        (
            name,
            [union(board, outcomes, [i for i in own if cells[i].attack == name]) for own in groups.values()],
        )
        for name in _engines(cells[i] for i in chosen)
    ]
    return Table(list(groups), rows, None, ("Best Known", [known(board, outcomes, own) for own in groups.values()]))


def _engines(cells: Iterable[Cell]) -> list[str]:
    return ranked((cell.attack, cell.attack_about.place) for cell in cells)


def entry(board: Board, outcomes: Outcomes, columns: list[int], joint: bool) -> TableEntry:
    """A cell as it stands; of several, or `joint`, what is right under all of them."""
    if joint or len(columns) != 1:
        return union(board, outcomes, columns)
    cell = outcomes.cells[columns[0]]
    if cell.imported == UNJUDGED:
        return TableEntry(None, board.n_examples, unfinished="imported, not judged here", cell=cell)
    if cell.status != "done":
        far = f"broke {cell.broken} of {cell.n_done}" if cell.on_survivors else f"{cell.n_done}/{board.n_examples}"
        return TableEntry(None, board.n_examples, unfinished=f"{cell.status}, {far}", cell=cell)
    known = TableEntry(cell.n_correct, cell.n_done, doubts=cell.doubts, cell=cell, reduced=cell.reduced)
    if not cell.on_survivors:
        return known
    return dataclasses.replace(
        known, count=None, total=board.n_examples, bounds=cell.bounds,
        explained=words.shown(cell.broken, cell.n_done),
    )  # fmt: skip


def union(board: Board, outcomes: Outcomes, columns: list[int]) -> TableEntry:
    """Right under all of these cells, as far as they are complete."""
    return _over(board, outcomes, columns, lambda done: evidence.left_right(outcomes, done))


def known(board: Board, outcomes: Outcomes, columns: list[int]) -> TableEntry:
    """Right under all of these cells, as far as they are complete, and without a perturbation."""
    return _over(board, outcomes, columns, lambda done: evidence.known_count(outcomes, done))


def _over(
    board: Board, outcomes: Outcomes, columns: list[int], count: Callable[[list[int]], Bounds | None]
) -> TableEntry:
    counted = set(outcomes.counted)
    done = [i for i in columns if i in counted]
    left_out = f"{len(columns) - len(done)} of {words.plural(len(columns), 'cell')} not complete, left out"
    if not done:
        return TableEntry(None, board.n_examples, unfinished="not complete" if columns else "")
    fewer = sum(bool(outcomes.cells[i].reduced) for i in done)
    found = count(done)
    exact = found is not None and found.exact
    return TableEntry(
        found.least if found is not None and exact else None,
        board.n_examples,
        None if exact else found,
        explained="" if exact or found is None else union_explained(found, board.n_examples, len(done)),
        incomplete=left_out if len(done) < len(columns) else "",
        reduced=words.on_reduced(fewer, len(done)),
    )


def best_adversary(board: Board, engine: str) -> TableEntry:
    """Right under all complete cells of an engine, without a look at every answer."""
    reduced = "on reduced budgets" if board.is_reduced(engine) else ""
    bounds, total = board.adversaries.get(engine), board.n_examples
    if bounds is None or bounds.exact:
        return TableEntry(bounds.least if bounds else None, total, reduced=reduced)
    cells = sum(cell.attack == engine for cell in board.counted)
    return TableEntry(None, total, bounds, explained=union_explained(bounds, total, cells), reduced=reduced)


def union_explained(bounds: Bounds, total: int, cells: int) -> str:
    """Why of several cells together only the bounds are known."""
    if (bounds.least, bounds.most) == (0, total):
        return words.nothing_left(cells)
    which = "this cell" if cells == 1 else f"all of these {cells} cells"
    return (
        f"right under {which}: {bounds.least:,} of {total:,}; not right: {total - bounds.most:,}; not known: "
        f"{bounds.most - bounds.least:,}, which were wrong before some of it was shown them"
    )


def published(board: Board) -> Table | None:
    """The paper's numbers for the same defence, norm and epsilon, if it has such a table."""
    rows = paper.matrix(board.defence, board.norm) if board.epsilon == paper.EPSILONS.get(board.norm) else {}
    if not rows:
        return None

    def entries(row: dict[str, float | None]) -> list[TableEntry]:
        return [TableEntry(None if v is None else paper.count(v), paper.EXAMPLES) for v in row.values()]

    engines = [(engine, entries(row)) for engine, row in rows.items() if engine != "best_known"]
    return Table(list(rows["best_known"]), engines, None, ("Best Known", entries(rows["best_known"])))


def rounded_frame(board: Board) -> pd.DataFrame:
    """Every cell as its attack made it and rounded to eight bits (percent), what it breaks, and how many of that survive."""
    rows = [
        (
            cell.attack,
            cell.source,
            percent(cell.accuracy),
            percent(cell.rounded.n_correct / cell.n_done if cell.rounded and cell.accuracy is not None else None),
            cell.broken,
            cell.rounded.survive if cell.rounded else None,
            cell.reduced,
            cell.n_done,
            cell.scope,
        )
        for cell in board.cells
    ]
    columns = [
        "attack", "source", "accuracy", "rounded_accuracy", "broken", "survive_rounding", "reduced", "examples", "scope",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).astype({"survive_rounding": "Int64"})


def breakers_frame(outcomes: Outcomes) -> pd.DataFrame:
    """How many examples each counted cell breaks, of how many that it was shown, and how many no other breaks."""
    names = evidence.names(outcomes)
    rows = [(names[b.column], b.breaks, *_counts(b.alone), b.shown) for b in evidence.breakers(outcomes)]
    columns = ["attack", "breaks", "only_this_one", "only_this_one_least", "only_this_one_most", "shown"]
    return pd.DataFrame(rows, columns=columns).astype({"only_this_one": "Int64"})


def cover_frame(outcomes: Outcomes) -> pd.DataFrame:
    """The greedy cover: attacks in order, what each adds, and Best Known (percent) after it."""
    names, total, rows = evidence.names(outcomes), len(outcomes.labels), []
    fewer = 0
    for step, one in enumerate(evidence.cover(outcomes), 1):
        fewer += bool(outcomes.cells[one.column].reduced)
        left = (percent(None if count is None else count / total) for count in _counts(one.left))
        rows.append((step, names[one.column], one.adds, *left, words.on_reduced(fewer, step)))
    columns = ["step", "attack", "adds", "best_known", "best_known_least", "best_known_most", "reduced"]
    return pd.DataFrame(rows, columns=columns)


def _counts(bounds: Bounds) -> tuple[int | None, int, int]:
    """A count if it is known, and what it lies between."""
    return (bounds.least if bounds.exact else None, bounds.least, bounds.most)
