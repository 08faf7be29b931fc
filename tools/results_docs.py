"""Writes docs/results.md from a database of results, with the paper's figures beside ours.

python tools/results_docs.py --db results/bench.db --command 'bench run …' > docs/results.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bench.stats import wilson
from bench.store import queries
from bench.store.database import open_database
from bench.store.queries import Board
from leaderboard import paper, words

ORDER = ("none", "pca-full", "pca-block", "jpeg-23", "jpeg-10", "block-shuffle", "linac")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True)
    parser.add_argument("--command", required=True, action="append", help="what made the database, for the reader")
    given = parser.parse_args()
    boards = queries.boards(open_database(given.db, create=False))
    boards.sort(key=lambda board: (ORDER.index(board.defence) if board.defence in ORDER else len(ORDER), board.id))
    print("\n".join(page(boards, given.command)))


def page(boards: list[Board], commands: list[str]) -> Iterator[str]:
    yield "# Results at laptop size\n"
    yield "Every number here was printed by\n"
    yield "```"
    yield from commands
    yield "```\n"
    yield (
        "and written by `python tools/results_docs.py`. Accuracies are percent of the first test images of CIFAR-10, with "
        "95 % Wilson intervals; the paper's are over all 10,000, of a network of other size. "
        f"The paper is {paper.CITATION}."
    )
    for norm in sorted({board.norm for board in boards}, reverse=True):
        yield f"\n## {words.norm(norm)}\n"
        own = [board for board in boards if board.norm == norm]
        yield "| defence | ε | examples | clean | Best Known | paper: clean | paper: Best Known |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        theirs = {row.defence: row for row in paper.table3(norm)}
        for board in own:
            row = theirs.get(board.defence)
            clean = board.clean.n_correct if board.clean else None
            cells = (
                f"`{board.defence}`", words.epsilon(board.epsilon), str(board.n_examples),
                _share(clean, board), _share(board.best_known, board),
                f"{row.clean:.2f}" if row else "–", f"{row.best_known:.2f}" if row else "–",
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"
        for board in own:
            yield from matrix(board)


def matrix(board: Board) -> Iterator[str]:
    """A board's engines × sources; the paper's number behind ours where its tables have one."""
    sources = list(dict.fromkeys(cell.source for cell in board.cells if cell.inside_threat_model))
    sources.sort(key=lambda name: (_place(name), name))
    engines = sorted({cell.attack for cell in board.cells})
    theirs = paper.matrix(board.defence, board.norm)
    yield f"\n### `{board.defence}`, {words.norm(board.norm)}\n"
    yield f"| engine | {' | '.join(f'`{source}`' for source in sources)} | Best Adversary |"
    yield f"| --- |{' --- |' * (len(sources) + 1)}"
    for engine in engines:
        found = {cell.source: cell for cell in board.cells if cell.attack == engine}
        numbers = []
        for source in sources:
            cell = found.get(source)
            shown = _share(cell.n_correct, board) if cell and cell.status == "done" else "–"
            known = theirs.get(engine, {}).get(source)
            numbers.append(shown + (f"; paper {known:.2f}" if known is not None else ""))
        best = board.best_adversary.get(engine)
        yield f"| `{engine}` | {' | '.join(numbers)} | {_share(best, board)} |"


def _place(source: str) -> int:
    kind = source.partition(":")[0]
    return words.SOURCE_ORDER.index(kind) if kind in words.SOURCE_ORDER else len(words.SOURCE_ORDER)


def _share(count: int | None, board: Board) -> str:
    if count is None:
        return "–"
    low, high = wilson(count, board.n_examples)
    return f"{100 * count / board.n_examples:.1f} ({100 * low:.1f}–{100 * high:.1f})"


if __name__ == "__main__":
    main()
