"""Text of others (a plug-in, another process) as it may be shown on a terminal and stored in any database."""

from __future__ import annotations

import unicodedata

LINE = 2_000
PAGE = 50_000
"""The longest line, and the longest text of several lines, in characters."""


def one_line(text: object, limit: int = LINE) -> str:
    """The text in one line, without control characters, at most so long."""
    return _cut(" ".join(_printable(_text(text, limit)).split()), limit)


def several_lines(text: object, limit: int = PAGE) -> str:
    """The same, with its line breaks."""
    return _cut("\n".join(_printable(line) for line in _text(text, limit).splitlines()), limit)


def _text(text: object, limit: int) -> str:
    """As a plain string of numpy's or Python's own making: a subclass may say one thing and be another."""
    try:
        found = str.__str__(text) if isinstance(text, str) else str(text)
    except Exception as error:  # what somebody's `__str__` raises is theirs
        found = f"<{type(text).__name__}, which cannot be read: {type(error).__name__}>"
    return found[: 4 * limit + 1]  # before it is looked at letter by letter


def _printable(text: str) -> str:
    """Without control characters, halves of surrogate pairs and the like: no escape sequence, no NUL, always UTF-8."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(" " if letter.isspace() else _shown(letter) for letter in text)


def _shown(letter: str) -> str:
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter).startswith("C") else letter


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
