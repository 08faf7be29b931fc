"""What a key search is asked to do."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.keysearch.guesses import Guess, GuessSource
    from bench.models.brought import Given
    from bench.spec import Spec

SLACK, ERROR = 0.05, 1e-4
"""How far below the defended accuracy a key may be and must not be lost, and how often one may be lost all the same."""


@dataclasses.dataclass(frozen=True)
class SearchRequest:
    """A defence, the name of the key its classifier was trained with, the guesses at that key, and how they are scored."""

    spec: Spec
    defence: str
    key_name: str
    sources: tuple[GuessSource, ...]
    """Of guesses, one after the other."""
    limit: int | None = None
    """Only so many guesses, from the first on."""
    images: int = 1000
    """Training images per guess."""
    seed: int = 0
    """Of the choice of images."""
    as_the_paper: bool = False
    """Score on the first test images, which the threat model does not give an attacker."""
    slack: float = SLACK
    error: float = ERROR
    to_the_end: bool = False
    """Score hopeless guesses on all images too."""
    stop_when_found: bool = False
    classifier: Given | None = None
    """The defended classifier, if it was made elsewhere."""

    @property
    def count(self) -> int:
        return min(self.limit or sys.maxsize, sum(map(len, self.sources)))

    def guesses(self) -> Iterator[Guess]:
        return itertools.islice(itertools.chain(*self.sources), self.count)
