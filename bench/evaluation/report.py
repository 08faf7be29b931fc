"""A board in the terminal: clean, every cell, Best Known and Best Adversary, with 95 % Wilson intervals."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from bench.store import coverage, ranking
from bench.store.key_worth import Left
from bench.store.queries import Board, Cell, attack_names
from bench.store.schema import UNJUDGED
from bench.support.printable import markup
from bench.support.stats import lost, wilson

REDUCED = " (reduced)"
MOST_MISSING = 6  # cells that are named
KNOWN = "Best Known"


def print_boards(boards: Iterable[Board], console: Console) -> None:
    for board in boards:
        console.print(board_table(board))
        console.print(markup(coverage_line(board)))
        for line in reduced_budgets(board):
            console.print(markup(line))
        if board.unchecked:
            console.print(markup(f"not checked for signs of weak attacks: {', '.join(board.unchecked)}"))
        for line in key_worth(board):
            console.print(line)
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


def key_worth(board: Board) -> list[str]:
    """What is left of Best Known for who has the key, and for who may ask; nothing without a key or without Best Known."""
    worth, known, n = board.key_worth, board.best_known, board.n_examples
    if worth is None or known is None:
        return []
    if not worth.measured:
        return ["what the key is worth: not measured"]

    def said(left: Left | None) -> str:
        if left is None:
            return "not measured"
        share, interval = _numbers(left.n_correct, n)
        low, high = lost(known, left.n_correct, n)
        points = f"{100 * (known - left.n_correct) / n:.2f} points less ({100 * low:.1f} to {100 * high:.1f})"
        return f"{share} % ({interval}), {points}{REDUCED if left.reduced else ''}"

    share, interval = _numbers(known, n)
    return [
        f"what the key is worth: of Best Known, {share} % ({interval}), is left",
        f"  with the key: {said(worth.leaked)}",
        f"  with queries: {said(worth.queried)}",
    ]


def board_table(board: Board) -> Table:
    title = f"{board.defence}  {board.norm} ε = {board.epsilon:.5g}  {board.n_examples} examples of {board.dataset}"
    table = Table(title=markup(title), title_justify="left", title_style="bold")
    rounded = any(cell.rounded for cell in board.cells)
    for name in ("cell", "accuracy %", "95 % interval", *(["rounded %"] if rounded else []), "examples", "doubts"):
        table.add_column(name, justify="left" if name in ("cell", "doubts") else "right")

    def add(name: str, correct: int, total: int, among_rounded: int | None, examples: str, said: str = "") -> None:
        share, interval = _numbers(correct, total)
        if name == KNOWN:
            share = f"{coverage.BOUND} {share}"
        numbers = [share, interval, *([_percent(among_rounded, total)] if rounded else [])]
        table.add_row(markup(name), *numbers, examples, markup(said), style="bold" if name == KNOWN else None)

    n = board.n_examples
    if board.clean:
        add("clean", board.clean.n_correct, n, _right_rounded(board.clean), str(n))
    names = attack_names(board.cells)
    for cell in board.cells:
        name = _name(cell, names[cell.attack_id])
        total = 0 if cell.on_survivors else cell.n_done  # of what it was not shown it says nothing
        add(name, cell.n_correct, total, _right_rounded(cell), _progress(cell, n), ", ".join(cell.doubts))
    table.add_section()
    for attack, count in board.best_adversary.items():
        reduced = REDUCED if board.is_reduced(attack) else ""
        add(f"Best Adversary {attack}{reduced}", count, n, None, str(n))
    if board.best_known is None:
        table.add_row(KNOWN, "–", *[""] * (3 if rounded else 2), "no complete cell")
    else:
        add(KNOWN, board.best_known, n, board.best_known_rounded, str(n), coverage.said(board.coverage))
    return table


def _right_rounded(cell: Cell) -> int | None:
    return cell.rounded.n_correct if cell.rounded else None


def _name(cell: Cell, attack: str) -> str:
    outside = "" if cell.inside_threat_model else " (outside the threat model)"
    imported = {None: "", UNJUDGED: " (imported, not judged)"}.get(cell.imported, " (imported)")
    return f"{attack}@{cell.source}{REDUCED if cell.reduced else ''}{outside}{imported}"


def _progress(cell: Cell, total: int) -> str:
    if cell.on_survivors:
        return f"broke {cell.broken} of {cell.n_done}" + (f", {cell.status}" if cell.status != "done" else "")
    return str(total) if cell.status == "done" else f"{cell.n_done}/{total} {cell.status}"


def _numbers(correct: int, total: int) -> tuple[str, str]:
    if not total:
        return "–", ""
    low, high = wilson(correct, total)
    return _percent(correct, total), f"{100 * low:.1f} to {100 * high:.1f}"


def _percent(count: int | None, total: int) -> str:
    return f"{100 * count / total:.2f}" if count is not None and total else "–"
