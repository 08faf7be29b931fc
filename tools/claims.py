"""The paper's claims, judged on boards of one's own: each holds, does not hold, or so few examples cannot tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from sqlalchemy.engine import Engine as Database

from bench import keys
from bench.store import evidence, key_searches, on_sources
from bench.store.outcomes import Outcomes
from bench.store.queries import Board, Cell
from bench.support.stats import wilson
from leaderboard import paper, tables, words
from leaderboard.tables import TableEntry
from tools import judgement
from tools.judgement import Answer, Count

PBA, TRANSFER, BPDA = "pba", "transfer", "bpda"
ABOUT_ZERO = 0.05
"""Accuracies up to this are called about 0."""

REDUCED = "†"
"""Marks the number of an attack that tries less than it was published with, or of several with such a one among them."""
BUDGET = ("steps", "targets", "queries")
FAR = 0.2
"""How much lower an accuracy is that is called far below another."""


@dataclasses.dataclass(frozen=True)
class ReportedBoard:
    """A board with what its tables are made of."""

    database: Database
    board: Board
    outcomes: Outcomes

    @property
    def title(self) -> str:
        board = self.board
        where = f"{words.norm(board.norm)}, ε = {words.epsilon(board.epsilon)}"
        return f"`{board.defence}`, {where}, {board.n_examples} examples"

    def strategies(self) -> dict[str, TableEntry]:
        """Best Known against each strategy alone by its name, and against those that the table has together."""
        table = tables.strategies(self.board, self.outcomes)
        assert table is not None
        assert table.total_row is not None
        names = {label: name for name, (label, _) in evidence.strategies(self.board.cells).items()}
        return {names.get(c, c): entry for c, entry in zip(table.columns, table.total_row[1], strict=True)}

    @property
    def best_known(self) -> TableEntry:
        """The board's Best Known."""
        return TableEntry(self.board.best_known, self.board.n_examples, reduced=words.known_on_reduced(self.board))

    def known(self, *strategies: str) -> np.ndarray | None:
        """Which examples (N, bool) are right without a perturbation and under all complete cells of these strategies.

        None where that is not known of all examples, for some were not shown to all of them.
        """
        cells = self.outcomes.cells
        columns = [column for column in self.outcomes.counted if cells[column].strategy in strategies]
        bounds = evidence.known_count(self.outcomes, columns)
        return evidence.best_known(self.outcomes, columns) if bounds is not None and bounds.exact else None

    @property
    def complete(self) -> bool:
        """Whether every cell that its preset asks for is behind its numbers."""
        return self.board.coverage is not None and self.board.coverage.complete


@dataclasses.dataclass(frozen=True)
class Claim:
    """Something the paper says, its figure, ours, and whether it holds here."""

    text: str
    paper: str
    ours: str
    answer: Answer


def claims(shown: Sequence[ReportedBoard], databases: Sequence[Database]) -> Iterator[Claim]:
    """What of the paper can be told from these boards."""
    for norm in paper.EPSILONS:
        own = [one for one in shown if one.board.norm == norm]
        for name in ("none", "jpeg-23", "jpeg-10", "pca-full", "pca-block"):
            yield from _broken([one for one in own if one.board.defence == name], name, norm)
        yield from _shuffle([one for one in own if one.board.defence == "block-shuffle"], norm)
        linac = [one for one in own if one.board.defence == "linac"]
        if linac:
            yield from _linac(max(linac, key=_speaks), norm)
    yield from _adversarial(shown)
    yield from _keys(databases)


def _speaks(one: ReportedBoard) -> tuple[int, int]:
    """Of several boards, the one with the most cells speaks for its defence."""
    return len(one.board.counted), one.board.n_examples


def _falling(boards: Sequence[ReportedBoard], strategy: str | None = None) -> tuple[str, Answer] | None:
    """Whether a defence falls to about 0 (to a strategy), and the number that says so: every board has an upper bound.

    The number is the one that shows it where one does, else that of the board that speaks for the defence.
    """
    bounds: list[tuple[Count, TableEntry, ReportedBoard]] = []
    for one in boards:
        found = one.strategies().get(strategy) if strategy else one.best_known
        if found is not None and found.count is not None:
            bounds.append(((found.count, found.total), found, one))
    if not bounds:
        return None
    answer = judgement.falls([(count, one.complete) for count, _, one in bounds], ABOUT_ZERO)
    _, entry, one = max(bounds, key=lambda bound: _speaks(bound[2]))
    if answer is Answer.HOLDS:
        _, entry, one = min(bounds, key=lambda bound: wilson(*bound[0])[1])
    return f"{marked(entry)} on {one.board.n_examples} examples", answer


def _broken(boards: Sequence[ReportedBoard], name: str, norm: str) -> Iterator[Claim]:
    row = {row.defence: row for row in paper.table3(norm)}.get(name)
    found = _falling(boards)
    if found is not None and (row is None or row.best_known <= 100 * ABOUT_ZERO):
        theirs = f"{row.best_known:.2f}" if row else "–"
        yield Claim(f"`{name}` falls to about 0, {words.norm(norm)}", theirs, *found)


def _shuffle(boards: Sequence[ReportedBoard], norm: str) -> Iterator[Claim]:
    theirs = paper.matrix("block-shuffle", norm).get("best_known", {})
    bypass, transfer = _falling(boards, PBA), _falling(boards, TRANSFER)
    if bypass is not None and transfer is not None:
        plain = [known for name, known in theirs.items() if known is not None and name not in ("bypass", "all")]
        yield Claim(f"`block-shuffle` falls to PBA, {words.norm(norm)}", f"{theirs['bypass']:.2f}", *bypass)
        ours, falls = transfer
        yield Claim(
            f"`block-shuffle` does not fall to transfer, {words.norm(norm)}",
            f"{min(plain):.2f} (strongest source)",
            f"{ours} (all sources together)",
            judgement.opposite(falls),
        )


def _linac(one: ReportedBoard, norm: str) -> Iterator[Claim]:
    where, found, board = words.norm(norm), one.strategies(), one.board
    theirs = {
        f.source: f.accuracy for f in paper.numbers() if (f.where, f.norm, f.attack) == ("table2", norm, "best_known")
    }
    order = {PBA: "pba", paper.SOURCE_MODELS_TITLE: "all-transfer", BPDA: "bpda"}
    bypass, both, bpda = one.known(PBA), one.known(*paper.SOURCE_MODELS), one.known(BPDA)
    if bypass is not None and both is not None and bpda is not None and all(name in found for name in order):
        yield Claim(
            f"against `linac`, PBA is stronger than transfer and BPDA together, and those than BPDA alone, {where}",
            ", ".join(f"{theirs[key]:.2f}" for key in order.values()),
            ", ".join(marked(found[name]) for name in order),
            judgement.every(judgement.fewer(bypass, both), judgement.fewer(both, bpda)),
        )
    known = evidence.best_known(one.outcomes)
    if known is not None and not any(cell.on_survivors for cell in board.counted):
        lowest = min(board.counted, key=lambda cell: cell.n_correct)
        cells = [one.outcomes.correct[:, column] for column in one.outcomes.counted]
        yield Claim(
            f"`linac`'s Best Known is lower than any single cell, {where}", "–",
            f"{marked(one.best_known)}; lowest cell `{lowest.attack}@{lowest.source}` "
            f"{share(lowest.n_correct, board.n_examples)}{REDUCED if lowest.reduced else ''}",
            judgement.every(*(judgement.fewer(known, cell) for cell in cells)),
        )  # fmt: skip


def _adversarial(shown: Sequence[ReportedBoard]) -> Iterator[Claim]:
    """Adversarially trained sources under `aa`, in their own norm, on the cell that spent most."""
    for norm in paper.EPSILONS:
        source = f"at-{norm}"
        cells = [
            (cell, one) for one in shown if one.board.norm == norm
            for cell in one.board.counted
            if (cell.attack, cell.source) == ("aa", source) and not cell.on_survivors
        ]  # fmt: skip
        if cells:
            cell, one = max(cells, key=lambda pair: (pair[1].board.n_examples, pair[0].gradients))
            left = (_standing(one, cell), cell.n_done)
            budget = words.settings({k: v for k, v in cell.attack_settings.items() if k in BUDGET})
            budget = f"reduced: {cell.reduced}" if cell.reduced else budget
            answer = judgement.opposite(judgement.at_most(left, ABOUT_ZERO))
            ours = share(*left) + (REDUCED if cell.reduced else "")
            yield Claim(f"`{source}` itself holds under `aa` ({budget})", "–", ours, answer)


def _standing(one: ReportedBoard, cell: Cell) -> int:
    found = on_sources.successes(one.database, one.board, cell)
    return int((found.shown & ~found.broken).sum())


def _keys(databases: Sequence[Database]) -> Iterator[Claim]:
    right = {row.defence: row.clean for row in paper.table3(next(iter(paper.EPSILONS)))}  # clean: in any norm
    theirs = f"at most {paper.BEST_KEYS[0][1]:.1f}; right {right['linac']:.1f}"
    for search in (search for db in databases for search in key_searches.found(db)):
        wrong = [
            guess for guess in search.guesses if guess.guess != keys.PUBLISHED_KEY and guess.images == search.n_images
        ]
        if search.key_id == keys.PUBLISHED_ID and wrong:
            best = max(wrong, key=lambda guess: guess.accuracy)
            mean = sum(guess.accuracy for guess in wrong) / len(wrong)
            defended = (round(search.defended_accuracy * search.defended_images), search.defended_images)
            yield Claim(
                f"{len(wrong)} wrong keys of `{search.defence}` are far below the right one ({search.n_images} images each)",
                theirs if search.defence == "linac" else "–",
                f"at most {100 * best.accuracy:.1f}, mean {100 * mean:.1f}; right {100 * search.defended_accuracy:.1f}",
                judgement.below_by((best.correct, best.images), defended, FAR),
            )


def marked(entry: TableEntry, interval: bool = True) -> str:
    """A number of a table, marked where its budget is reduced."""
    bounds, total = entry.bounds, entry.total
    said = share(entry.count, total, interval) if bounds is None else words.between(bounds, total)
    return said + (REDUCED if entry.reduced else "")


def share(count: int | None, total: int, interval: bool = True) -> str:
    """A count of examples in percent, with its 95 % interval."""
    if count is None:
        return "–"
    if not interval:
        return f"{100 * count / total:.2f}"
    low, high = wilson(count, total)
    return f"{100 * count / total:.1f} ({100 * low:.1f}–{100 * high:.1f})"
