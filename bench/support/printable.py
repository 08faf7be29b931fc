"""Text that somebody else wrote, as it may reach a terminal: nothing in it moves the cursor or turns the line round.

A name from an archive or a database may hold escape sequences, which a terminal obeys (they colour, erase, set the
window's title, answer with what was typed), and signs that change the direction of what follows.
"""

from __future__ import annotations

import json
import unicodedata

KEPT = "\n\t"
_ODD = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, invisible signs such as bidirectional ones, halves, line separators


def is_printable(text: str) -> bool:
    """Whether nothing in a text would have to be replaced, nor ends its line."""
    return text.isprintable() or not any(_is_odd(sign) or sign in KEPT for sign in text)


def printable(text: str) -> str:
    """The text with every sign that is no letter to look at written out, as in Python: `\\x1b`. Lines stay lines."""
    if text.isprintable():
        return text
    return "".join(_written(sign) if _is_odd(sign) else sign for sign in text)


def printable_json(text: str) -> str:
    """The same for JSON, which stays JSON of the same values."""
    if text.isprintable():
        return text
    return "".join(json.dumps(sign)[1:-1] if _is_odd(sign) else sign for sign in text)


def markup(text: str) -> str:
    """The same for `rich`, which would read [square brackets] as commands."""
    from rich.markup import escape

    return escape(printable(text))


def _is_odd(sign: str) -> bool:
    return sign not in KEPT and unicodedata.category(sign) in _ODD


def _written(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
