"""How much is checked of a source and of attacks on it, and what was found. Plug-ins find it in `bench.api`."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from bench.errors import UsageError


class Finding(NamedTuple):
    """What a probe has found: so many of the examples that it looked at show a flag."""

    found: int
    examined: int


@dataclasses.dataclass(frozen=True)
class HealthBudget:
    """How much is checked of a source and of the attacks on it: a preset's table `health`, and `health.KIND` for a kind."""

    images: int = 32
    """The first so many examples of a board; 0 for none."""
    attacked: int = 16
    """The first so many examples of every cell, after its attack; 0 for none."""
    steps: int = 50
    """Of the descents on the source."""
    queries: int = 1000
    """Of Square, where descents have failed; 0 leaves it out."""

    def __post_init__(self) -> None:
        for name, least in (("images", 0), ("attacked", 0), ("steps", 1), ("queries", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"health: {name} is {value!r}; it must be a whole number of at least {least}")
