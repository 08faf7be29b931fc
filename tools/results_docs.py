"""Writes docs/results.md from databases of results: every table, the paper's figures beside ours, and its claims.

python -m tools.results_docs --db results/bench.db --command 'bench run …' > docs/results.md
python -m tools.results_docs --db many.db --db few.db --command 'bench run …' --command 'bench run …'

Boards whose cells are not all complete are refused; a result that the harness doubts has a question mark, one of an
attack that tries less than it was published with a dagger.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.engine import Engine as Database

from bench.evaluation.report import reduced_budgets
from bench.store import outcomes, queries
from bench.store.database import open_database
from leaderboard import paper, tables, words
from leaderboard.tables import Table
from tools import judgement
from tools.claims import ABOUT_ZERO, REDUCED, ReportedBoard, claims, marked, share

ORDER = ("none", "pca-full", "pca-block", "jpeg-23", "jpeg-10", "block-shuffle", "linac")


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
        "and put together by `python -m tools.results_docs`. Accuracies are percent of the first test images of CIFAR-10, "
        "with 95 % Wilson intervals; the paper's are over all 10,000, of WideResNet-70-16. "
        f"The paper is {paper.CITATION}. {REDUCED} marks numbers of attacks on reduced budgets, which try less than they "
        "were published with: more could only lower them. Below every table stands what they try."
    )
    yield "\n## The paper's claims at this size\n"
    yield (
        "A claim holds, or does not, where the whole interval of a number says so, or a paired test on the same images does "
        f"(exact McNemar, {judgement.LEVEL:g}); elsewhere these images cannot tell. About 0 is at most "
        f"{100 * ABOUT_ZERO:g} %; Best Known is an upper bound, so that any board may show that a defence falls.\n"
    )
    yield "| claim | paper | here | holds here |"
    yield "| --- | --- | --- | --- |"
    for claim in claims(shown, databases):
        yield f"| {claim.text} | {claim.paper} | {claim.ours} | {claim.answer.value} |"
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
    for one in shown:
        board = one.board
        row = theirs.get(board.defence)
        cells = (
            f"`{board.defence}`", words.epsilon(board.epsilon), str(board.n_examples), str(len(board.counted)),
            share(board.clean.n_correct if board.clean else None, board.n_examples),
            marked(one.best_known),
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
    if reduced := reduced_budgets(one.board):
        yield f"\n{REDUCED} {'; '.join(line.removeprefix('reduced: ') for line in reduced)}."
    if theirs := tables.published(one.board):
        yield "\nThe paper's:\n"
        yield from markdown(theirs, interval=False)


def markdown(table: Table, interval: bool = True) -> Iterator[str]:
    columns = [*table.columns, *([table.total_column] if table.total_column else [])]
    yield f"| engine | {' | '.join(columns)} |"
    yield f"| --- |{' --- |' * len(columns)}"
    for name, entries in [*table.rows, *([table.total_row] if table.total_row else [])]:
        shown = [marked(entry, interval) + "?" * bool(entry.doubts) for entry in entries]
        yield f"| {name if name == 'Best Known' else f'`{name}`'} | {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
