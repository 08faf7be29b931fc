"""A board in the terminal: clean, every cell, Best Known and Best Adversary, with 95 % Wilson intervals."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from bench.store import coverage, ranking
from bench.store.queries import Board, Cell, attack_names
from bench.store.schema import UNJUDGED
from bench.support.printable import markup
from bench.support.stats import wilson

REDUCED = " (reduced)"
MOST_MISSING = 6  # cells that are named


def print_boards(boards: Iterable[Board], console: Console) -> None:
    for board in boards:
        console.print(board_table(board))
        console.print(markup(coverage_line(board)))
        for line in reduced_budgets(board):
            console.print(markup(line))
        if board.unchecked:
            console.print(markup(f"not checked for signs of weak attacks: {', '.join(board.unchecked)}"))
        if board.left_out:
            console.print(
                f"partial: {len(board.left_out)} of {len(board.cells)} cells are not complete and do not count"
            )
        if unjudged := sum(cell.imported == UNJUDGED for cell in board.cells):
            console.print(f"imported: {unjudged} of {len(board.cells)} cells were not judged here and do not count")


def coverage_line(board: Board) -> str:
    """How many of the required cells a board has, by which preset, which are missing, and why it stands where it does."""
    found = board.coverage
    if found is None:
        return f"{coverage.UNKNOWN}. {ranking.why(board)}"
    missing = ", ".join(found.missing[:MOST_MISSING]) + f" and {len(found.missing) - MOST_MISSING} more" * (
        len(found.missing) > MOST_MISSING
    )
    return (
        f"coverage: {found} that preset {found.required.preset} asks for"
        f"{f'; missing: {missing}' if missing else ''}. {ranking.why(board)}"
    )


def reduced_budgets(board: Board) -> list[str]:
    """What the attacks that try less than they were published with try, by that."""
    names, found = attack_names(board.cells), dict[str, list[str]]()
    for cell in board.cells:
        if cell.reduced:
            found.setdefault(f"{names[cell.attack_id]}: {cell.reduced}", []).append(cell.source)
    return [f"reduced: {what} (on {', '.join(sources)})" for what, sources in found.items()]


def board_table(board: Board) -> Table:
    title = f"{board.defence}  {board.norm} ε = {board.epsilon:.5g}  {board.n_examples} examples of {board.dataset}"
    table = Table(title=markup(title), title_justify="left", title_style="bold")
    for name in ("cell", "accuracy %", "95 % interval", "examples", "doubts"):
        table.add_column(name, justify="left" if name in ("cell", "doubts") else "right")
    if board.clean:
        table.add_row("clean", *_numbers(board.clean.n_correct, board.n_examples), str(board.n_examples), "")
    names = attack_names(board.cells)
    for cell in board.cells:
        table.add_row(
            markup(_name(cell, names[cell.attack_id])),
            *_numbers(cell.n_correct, cell.n_done),
            _progress(cell, board.n_examples),
            markup(", ".join(cell.doubts)),
        )
    table.add_section()
    for attack, count in board.best_adversary.items():
        reduced = REDUCED if board.is_reduced(attack) else ""
        name = markup(f"Best Adversary {attack}{reduced}")
        table.add_row(name, *_numbers(count, board.n_examples), str(board.n_examples), "")
    if board.best_known is None:
        table.add_row("Best Known", "–", "", "", "no complete cell")
    else:
        share, interval = _numbers(board.best_known, board.n_examples)
        said, total = coverage.said(board.coverage), str(board.n_examples)
        table.add_row("Best Known", f"{coverage.BOUND} {share}", interval, total, said, style="bold")
    return table


def _name(cell: Cell, attack: str) -> str:
    outside = "" if cell.inside_threat_model else " (outside the threat model)"
    imported = {None: "", UNJUDGED: " (imported, not judged)"}.get(cell.imported, " (imported)")
    return f"{attack}@{cell.source}{REDUCED if cell.reduced else ''}{outside}{imported}"


def _progress(cell: Cell, total: int) -> str:
    return str(total) if cell.status == "done" else f"{cell.n_done}/{total} {cell.status}"


def _numbers(correct: int, total: int) -> tuple[str, str]:
    if not total:
        return "–", ""
    low, high = wilson(correct, total)
    return f"{100 * correct / total:.2f}", f"{100 * low:.1f} to {100 * high:.1f}"
