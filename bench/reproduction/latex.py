"""A table as LaTeX, for \\input. It needs the package booktabs."""

from __future__ import annotations

from collections.abc import Sequence


def tabular(alignment: str, head: Sequence[str], parts: Sequence[Sequence[Sequence[str]]], comment: str) -> str:
    """Rows of cells in parts with a line between them; cells are LaTeX already."""
    lines = [f"% {comment}", rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", _row(head)]
    for part in parts:
        lines += [r"\midrule", *map(_row, part)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escaped(text: str) -> str:
    """Text as LaTeX shows it."""
    for character in "&%_#":
        text = text.replace(character, rf"\{character}")
    return text.replace("–", "--")


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
