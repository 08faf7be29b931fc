"""A board in the terminal: clean, every cell, Best Known and Best Adversary, with 95 % Wilson intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from bench.store import coverage, ranking
from bench.store.best_known import Bounds
from bench.store.key_worth import Left
from bench.store.queries import Board, Cell, attack_names
from bench.store.schema import UNJUDGED
from bench.support.printable import markup
from bench.support.stats import lost, wilson

REDUCED = " (reduced)"
MOST_NAMED = 6  # cells, in one line
KNOWN = "Best Known"


def print_boards(boards: Iterable[Board], console: Console) -> None:
    for board in boards:
        console.print(board_table(board))
        console.print(markup(coverage_line(board)))
        for line in (*survivors(board), *reduced_budgets(board)):
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
    return (
        f"coverage: {found} that preset {found.required.preset} asks for"
        f"{f'; missing: {_some(found.missing)}' if found.missing else ''}. {ranking.why(board)}"
    )


def survivors(board: Board) -> list[str]:
    """How many cells were shown only what others had left, and for which nothing was."""
    some = [cell for cell in board.cells if cell.on_survivors]
    if not some:
        return []
    names = attack_names(board.cells)
    idle = [f"{names[cell.attack_id]}@{cell.source}" for cell in some if _was_idle(cell)]
    lines = [
        f"scope survivors: {len(some)} of {_cells(len(board.cells))} were shown only what the ones before them had left. "
        "Of their accuracies there are bounds; Best Known is exact"
    ]
    if idle:
        lines.append(f"nothing was left for {_cells(len(idle))}: {_some(idle)}")
    return lines


def _was_idle(cell: Cell) -> bool:
    """Whether nothing was left for a cell when examples came to it."""
    return cell.on_survivors and cell.status == "done" and not cell.n_done


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


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

    def add(name: str, numbers: tuple[str, str], among_rounded: str, examples: str, said: str = "") -> None:
        own = [*numbers, *([among_rounded] if rounded else [])]
        table.add_row(markup(name), *own, examples, markup(said), style="bold" if name == KNOWN else None)

    n = board.n_examples
    if board.clean:
        add("clean", _numbers(board.clean.n_correct, n), _rounded(board.clean), str(n))
    names = attack_names(board.cells)
    for cell in board.cells:
        if not _was_idle(cell):
            name, doubts = _name(cell, names[cell.attack_id]), ", ".join(cell.doubts)
            add(name, _accuracy(cell), _rounded(cell), _progress(cell, n), doubts)
    table.add_section()
    for attack, bounds in board.adversaries.items():
        reduced = REDUCED if board.is_reduced(attack) else ""
        if bounds != Bounds(0, n):
            add(
                f"Best Adversary {attack}{reduced}",
                _within(bounds, n),
                _percent(None, n),
                str(n) if bounds.exact else "",
            )
    if board.best_known is None:
        table.add_row(KNOWN, "–", *[""] * (3 if rounded else 2), "no complete cell")
    else:
        share, interval = _numbers(board.best_known, n)
        said = coverage.said(board.coverage)
        add(KNOWN, (f"{coverage.BOUND} {share}", interval), _percent(board.best_known_rounded, n), str(n), said)
    return table


def _accuracy(cell: Cell) -> tuple[str, str]:
    """A cell's accuracy and its interval; of one that was shown only some of the examples, the bounds."""
    return _within(cell.bounds, cell.n_examples) if cell.on_survivors else _numbers(cell.n_correct, cell.n_done)


def _within(bounds: Bounds, total: int) -> tuple[str, str]:
    """A count in percent and its interval, if it is known; else what it lies between."""
    if bounds.exact:
        return _numbers(bounds.least, total)
    return f"{100 * bounds.least / total:.1f}–{100 * bounds.most / total:.1f}", ""


def _rounded(cell: Cell) -> str:
    """The accuracy on the images rounded to eight bits, where it is known of all examples."""
    return _percent(cell.rounded.n_correct if cell.rounded and not cell.on_survivors else None, cell.n_done)


def _name(cell: Cell, attack: str) -> str:
    outside = "" if cell.inside_threat_model else " (outside the threat model)"
    imported = {None: "", UNJUDGED: " (imported, not judged)"}.get(cell.imported, " (imported)")
    return f"{attack}@{cell.source}{REDUCED if cell.reduced else ''}{outside}{imported}"


def _progress(cell: Cell, total: int) -> str:
    if cell.on_survivors:
        return f"broke {cell.broken}/{cell.n_done}" + (f", {cell.status}" if cell.status != "done" else "")
    return str(total) if cell.status == "done" else f"{cell.n_done}/{total} {cell.status}"


def _numbers(correct: int, total: int) -> tuple[str, str]:
    if not total:
        return "–", ""
    low, high = wilson(correct, total)
    return _percent(correct, total), f"{100 * low:.1f} to {100 * high:.1f}"


def _percent(count: int | None, total: int) -> str:
    return f"{100 * count / total:.2f}" if count is not None and total else "–"
