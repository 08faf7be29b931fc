"""Which cells an evaluation of a defence must have, and which of them a board has: its coverage.

A run stores with a board what `--attack all` means for its defence under the run's preset. Pages read it from there: they
plan nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from bench.support.fingerprint import canonical
from bench.support.printable import is_printable

MOST_PAIRS = 10_000
LONGEST_PAIR = 401  # two names of 200, as `attack` and `source` have them, and an @
LONGEST_PRESET = 50
UNKNOWN = "coverage not known"
BOUND = "at most"
"""What Best Known says of a defence's robust accuracy, whatever the coverage: another attack can only lower it."""


@dataclasses.dataclass(frozen=True)
class Required:
    """The pairs engine@source that a preset asks for, whatever the engine's settings."""

    preset: str
    pairs: tuple[str, ...]
    imported: bool = False
    """Whether it is the word of whoever exported the board, and not of a run of this database's own."""

    def to_json(self) -> str:
        """The text of the column `board.required_json`."""
        return canonical({"preset": self.preset, "pairs": sorted(set(self.pairs)), "imported": self.imported})


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How much of what is required a board has."""

    required: Required
    covered: tuple[str, ...]
    """The required pairs that have a complete cell that counts."""

    @property
    def missing(self) -> tuple[str, ...]:
        own = set(self.covered)
        return tuple(pair for pair in self.required.pairs if pair not in own)

    @property
    def share(self) -> float:
        return len(self.covered) / len(self.required.pairs)

    @property
    def complete(self) -> bool:
        return not self.missing

    def __str__(self) -> str:
        total = len(self.required.pairs)
        return f"{len(self.covered)} of {total} cell{'' if total == 1 else 's'}"


def of(required: Required | None, done: Iterable[str]) -> Coverage | None:
    """The coverage of a board by the pairs that count on it; None where nobody has said what is required."""
    if required is None:
        return None
    there = set(done)
    return Coverage(required, tuple(pair for pair in required.pairs if pair in there))


def said(coverage: Coverage | None) -> str:
    """The coverage in words: 2 of 36 cells, or that it is not known."""
    return UNKNOWN if coverage is None else str(coverage)


def from_json(text: str | None) -> Required | None:
    """What the column says; None where nothing is stored, and where it is no such thing: it is never complete then."""
    try:
        value = None if text is None else json.loads(text)
    except ValueError:
        return None
    if value is None or problem(value):
        return None
    return Required(value["preset"], tuple(value["pairs"]), value["imported"])


def as_imported(text: str | None) -> str | None:
    """The column of a board that somebody else exported: from here on it is marked as their word."""
    found = from_json(text)
    return None if found is None else dataclasses.replace(found, imported=True).to_json()


def problem(value: Any) -> str | None:
    """What makes a value no set of required pairs, or None."""
    if not isinstance(value, dict) or set(value) != {"preset", "pairs", "imported"}:
        return "is no set of required cells: it has a preset, pairs, and whether it was imported"
    preset, pairs = value["preset"], value["pairs"]
    if not isinstance(value["imported"], bool):
        return "does not say whether it was imported"
    if not isinstance(preset, str) or not is_printable(preset) or not 0 < len(preset) <= LONGEST_PRESET:
        return "has no preset's name"
    if not isinstance(pairs, list) or not 0 < len(pairs) <= MOST_PAIRS:
        return f"has no list of 1 to {MOST_PAIRS} pairs"
    if not all(isinstance(pair, str) and _is_pair(pair) for pair in pairs):
        return "has a pair that is no engine@source"
    if len(set(pairs)) < len(pairs):
        return "has a pair twice"
    return None


def _is_pair(text: str) -> bool:
    engine, at, source = text.partition("@")
    return len(text) <= LONGEST_PAIR and is_printable(text) and bool(engine.strip() and at and source.strip())
