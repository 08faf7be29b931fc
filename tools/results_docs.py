"""Writes docs/results.md from databases of results: every table, the paper's figures beside ours, and its claims.

python tools/results_docs.py --db results/bench.db --command 'bench run …' > docs/results.md
python tools/results_docs.py --db many.db --db few.db --command 'bench run …' --command 'bench run …'

Boards whose cells are not all complete are refused; a result that the harness doubts has a question mark.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.engine import Engine as Database

from bench import keys
from bench.store import evidence, key_searches, on_sources, outcomes, queries
from bench.store.database import open_database
from bench.store.outcomes import Outcomes
from bench.store.queries import Board, Cell
from bench.support.stats import wilson
from leaderboard import paper, tables, words
from leaderboard.tables import Table, TableEntry

ORDER = ("none", "pca-full", "pca-block", "jpeg-23", "jpeg-10", "block-shuffle", "linac")
PBA, TRANSFER, BPDA = "pba", "transfer", "bpda"
ABOUT_ZERO = 0.05
"""Accuracies up to this are called about 0: with 50 examples, two of them."""

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


@dataclasses.dataclass(frozen=True)
class Claim:
    """Something the paper says, its figure, ours, and whether it holds here."""

    text: str
    paper: str
    ours: str
    holds: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True, action="append")
    parser.add_argument("--command", required=True, action="append", help="what made the databases, for the reader")
    parser.add_argument("--notes", type=Path, help="a text to put below the claims: why they hold here, or do not")
    given = parser.parse_args()
    databases = [open_database(path, create=False) for path in given.db]
    shown = [ReportedBoard(db, board, outcomes.outcomes(db, board)) for db in databases for board in queries.boards(db)]
    shown = [
        one for one in shown if one.board.defence in ORDER and one.board.epsilon == paper.EPSILONS.get(one.board.norm)
    ]
    for board in (one.board for one in shown):
        if board.partial or board.clean is None:
            sys.exit(f"board {board.id} ({board.defence}, {board.norm}) is not complete: run its command again")
    shown.sort(key=lambda one: ORDER.index(one.board.defence))
    notes = given.notes.read_text() if given.notes else ""
    print("\n".join(page(shown, databases, given.command, notes)))


def page(shown: list[ReportedBoard], databases: list[Database], commands: list[str], notes: str) -> Iterator[str]:
    yield "# Results at laptop size\n"
    yield "Every number here was printed by\n"
    yield "```"
    yield from commands
    yield "```\n"
    yield (
        "and put together by `python tools/results_docs.py`. Accuracies are percent of the first test images of CIFAR-10, "
        "with 95 % Wilson intervals; the paper's are over all 10,000, of WideResNet-70-16. "
        f"The paper is {paper.CITATION}."
    )
    yield "\n## The paper's claims at this size\n"
    yield "| claim | paper | here | holds here |"
    yield "| --- | --- | --- | --- |"
    for claim in claims(shown, databases):
        yield f"| {claim.text} | {claim.paper} | {claim.ours} | {'yes' if claim.holds else '**no**'} |"
    if notes:
        yield f"\n{notes.strip()}"
    for norm in paper.EPSILONS:
        own = [one for one in shown if one.board.norm == norm]
        if own:
            yield f"\n## {words.norm(norm)}\n"
            yield from summary(own, norm)
    for one in shown:
        yield f"\n### {one.title}\n"
        yield from matrix(one)


def summary(shown: list[ReportedBoard], norm: str) -> Iterator[str]:
    yield "| defence | ε | examples | cells | clean | Best Known | paper: clean | paper: Best Known |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    theirs = {row.defence: row for row in paper.table3(norm)}
    for board in (one.board for one in shown):
        row = theirs.get(board.defence)
        cells = (
            f"`{board.defence}`", words.epsilon(board.epsilon), str(board.n_examples), str(len(board.counted)),
            _share(board.clean.n_correct if board.clean else None, board.n_examples),
            _share(board.best_known, board.n_examples),
            f"{row.clean:.2f}" if row else "–", f"{row.best_known:.2f}" if row else "–",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def matrix(one: ReportedBoard) -> Iterator[str]:
    """A board's engines × sources, its strategies if there are several, and the paper's tables of the same."""
    own = tables.matrix(one.board, one.outcomes)
    assert own is not None
    yield from markdown(own)
    strategies = tables.strategies(one.board, one.outcomes)
    if strategies and len(strategies.columns) > 1:
        yield "\nBy strategy:\n"
        yield from markdown(strategies)
    if theirs := tables.published(one.board):
        yield "\nThe paper's:\n"
        yield from markdown(theirs, interval=False)


def markdown(table: Table, interval: bool = True) -> Iterator[str]:
    columns = [*table.columns, *([table.total_column] if table.total_column else [])]
    yield f"| engine | {' | '.join(columns)} |"
    yield f"| --- |{' --- |' * len(columns)}"
    for name, entries in [*table.rows, *([table.total_row] if table.total_row else [])]:
        shown = [_share(entry.count, entry.total, interval) + "?" * bool(entry.doubts) for entry in entries]
        yield f"| {name if name == 'Best Known' else f'`{name}`'} | {' | '.join(shown)} |"


def claims(shown: list[ReportedBoard], databases: list[Database]) -> Iterator[Claim]:
    """What of the paper can be told from these boards. The board with the most cells speaks for its defence."""
    for norm in paper.EPSILONS:
        boards: dict[str, ReportedBoard] = {}
        for one in sorted((s for s in shown if s.board.norm == norm), key=lambda s: len(s.board.counted)):
            boards[one.board.defence] = one
        theirs = {row.defence: row for row in paper.table3(norm)}
        where = words.norm(norm)
        for name in ("none", "jpeg-23", "jpeg-10", "pca-full", "pca-block"):
            row = theirs.get(name)
            if name in boards and (row is None or row.best_known <= 100 * ABOUT_ZERO):
                board = boards[name].board
                known = TableEntry(board.best_known, board.n_examples)
                yield Claim(
                    f"`{name}` falls to about 0, {where}",
                    f"{row.best_known:.2f}" if row else "–",
                    _of(known),
                    _zero(known),
                )
        if "block-shuffle" in boards:
            yield from _shuffle(boards["block-shuffle"], norm)
        if "linac" in boards:
            yield from _linac(boards["linac"], norm)
    yield from _adversarial(shown)
    yield from _keys(databases)


def _shuffle(one: ReportedBoard, norm: str) -> Iterator[Claim]:
    found = one.strategies()
    theirs = paper.matrix("block-shuffle", norm).get("best_known", {})
    if PBA in found and TRANSFER in found:
        plain = [known for name, known in theirs.items() if known is not None and name not in ("bypass", "all")]
        yield Claim(
            f"`block-shuffle` falls to PBA, {words.norm(norm)}", f"{theirs['bypass']:.2f}",
            _of(found[PBA]), _zero(found[PBA]),
        )  # fmt: skip
        yield Claim(
            f"`block-shuffle` does not fall to transfer, {words.norm(norm)}",
            f"{min(plain):.2f} (strongest source)", f"{_of(found[TRANSFER])} (all sources together)",
            not _zero(found[TRANSFER]),
        )  # fmt: skip


def _linac(one: ReportedBoard, norm: str) -> Iterator[Claim]:
    where, found, board = words.norm(norm), one.strategies(), one.board
    theirs = {
        f.source: f.accuracy for f in paper.numbers() if (f.where, f.norm, f.attack) == ("table2", norm, "best_known")
    }
    order = {PBA: "pba", paper.SOURCE_MODELS_TITLE: "all-transfer", BPDA: "bpda"}
    counts = [found[name].count for name in order if name in found]
    if len(counts) == len(order) and None not in counts:
        yield Claim(
            f"against `linac`, PBA is stronger than transfer and BPDA together, and those than BPDA alone, {where}",
            ", ".join(f"{theirs[key]:.2f}" for key in order.values()),
            ", ".join(_of(found[name]) for name in order),
            all(a is not None and b is not None and a < b for a, b in itertools.pairwise(counts)),
        )
    lowest = min(board.counted, key=lambda cell: cell.n_correct)
    if board.best_known is not None:
        yield Claim(
            f"`linac`'s Best Known is lower than any single cell, {where}", "–",
            f"{_share(board.best_known, board.n_examples)}; lowest cell `{lowest.attack}@{lowest.source}` "
            f"{_share(lowest.n_correct, board.n_examples)}",
            board.best_known < lowest.n_correct,
        )  # fmt: skip


def _adversarial(shown: list[ReportedBoard]) -> Iterator[Claim]:
    """Adversarially trained sources under `aa`, in their own norm, on the cell that spent most."""
    for norm in paper.EPSILONS:
        source = f"at-{norm}"
        cells = [
            (cell, one) for one in shown if one.board.norm == norm
            for cell in one.board.counted if (cell.attack, cell.source) == ("aa", source)
        ]  # fmt: skip
        if cells:
            cell, one = max(cells, key=lambda pair: (pair[1].board.n_examples, pair[0].gradients))
            left = _standing(one, cell)
            budget = words.settings({k: cell.attack_settings[k] for k in ("steps", "targets", "queries")})
            yield Claim(
                f"`{source}` itself holds under `aa` ({budget})", "–", _share(left, cell.n_done),
                left / cell.n_done > ABOUT_ZERO,
            )  # fmt: skip


def _standing(one: ReportedBoard, cell: Cell) -> int:
    broken, _ = on_sources.successes(one.database, one.board, cell)
    return int((~broken).sum())


def _keys(databases: list[Database]) -> Iterator[Claim]:
    right = {row.defence: row.clean for row in paper.table3(next(iter(paper.EPSILONS)))}  # clean: in any norm
    theirs = f"at most {paper.BEST_KEYS[0][1]:.1f}; right {right['linac']:.1f}"
    for search in (search for db in databases for search in key_searches.found(db)):
        wrong = [
            guess for guess in search.guesses if guess.guess != keys.PUBLISHED_KEY and guess.images == search.n_images
        ]
        if search.key_id == keys.PUBLISHED_ID and wrong:
            best = max(guess.accuracy for guess in wrong)
            mean = sum(guess.accuracy for guess in wrong) / len(wrong)
            yield Claim(
                f"{len(wrong)} wrong keys of `{search.defence}` are far below the right one ({search.n_images} images each)",
                theirs if search.defence == "linac" else "–",
                f"at most {100 * best:.1f}, mean {100 * mean:.1f}; right {100 * search.defended_accuracy:.1f}",
                best < search.defended_accuracy - FAR,
            )


def _zero(entry: TableEntry) -> bool:
    return entry.share is not None and entry.share <= ABOUT_ZERO


def _of(entry: TableEntry) -> str:
    return _share(entry.count, entry.total)


def _share(count: int | None, total: int, interval: bool = True) -> str:
    if count is None:
        return "–"
    if not interval:
        return f"{100 * count / total:.2f}"
    low, high = wilson(count, total)
    return f"{100 * count / total:.1f} ({100 * low:.1f}–{100 * high:.1f})"


if __name__ == "__main__":
    main()
