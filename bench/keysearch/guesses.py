"""Where guessed keys come from: each source knows how many it has and gives them one by one, always in the same order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from bench.api import UsageError

LOWEST, HIGHEST = -(2**63), 2**63 - 1
CHUNK = 1000
PAPER_SEEDS, PAPER_DRAWS = range(1, 11), 10_000


@dataclasses.dataclass(frozen=True)
class Guess:
    """A key, and where it is from in a few words."""

    key: int
    origin: str


class GuessSource(Protocol):
    """A sequence of guesses, made as they are asked for."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Guess]: ...


def draws(seed: int, count: int) -> Iterator[int]:
    """The first draws of RandomState(seed).randint(int64 min, int64 max, dtype=int64): how the paper made its key."""
    random = np.random.RandomState(seed)
    for start in range(0, count, CHUNK):
        yield from random.randint(LOWEST, HIGHEST, size=min(CHUNK, count - start), dtype=np.int64).tolist()


@dataclasses.dataclass(frozen=True)
class PaperGenerator:
    """The 100,000 keys of the paper's Figure 2: 10,000 draws of each of the seeds 1 to 10 (they hold those of Table 4)."""

    def __len__(self) -> int:
        return len(PAPER_SEEDS) * PAPER_DRAWS

    def __iter__(self) -> Iterator[Guess]:
        for seed in PAPER_SEEDS:
            for number, key in enumerate(draws(seed, PAPER_DRAWS), start=1):
                yield Guess(key, f"paper, seed {seed}, draw {number}")


@dataclasses.dataclass(frozen=True)
class MetaSeeds:
    """The first draws of numpy's generator for a range of seeds: keys drawn the way the paper drew its own."""

    first: int
    last: int
    draws: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last < 2**32:
            raise UsageError(f"meta-seeds {self.first}..{self.last}: give FIRST..LAST, both from 0 to {2**32 - 1}")

    def __len__(self) -> int:
        return (self.last - self.first + 1) * self.draws

    def __iter__(self) -> Iterator[Guess]:
        for seed in range(self.first, self.last + 1):
            for number, key in enumerate(draws(seed, self.draws), start=1):
                yield Guess(key, f"meta-seed {seed}" + (f", draw {number}" if self.draws > 1 else ""))


@dataclasses.dataclass(frozen=True)
class RandomKeys:
    """Keys drawn uniformly from all 64-bit ones. More of them begin with the same ones."""

    count: int
    seed: int = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Guess]:
        for start in range(0, self.count, CHUNK):
            random = np.random.default_rng((self.seed, start))
            keys = random.integers(LOWEST, HIGHEST, size=CHUNK, dtype=np.int64, endpoint=True)
            for number, key in enumerate(keys[: self.count - start].tolist(), start=start + 1):
                yield Guess(key, f"random, seed {self.seed}, draw {number}")


class KeysFile:
    """The integers of a text file, one a line; blank lines and lines that begin with # are passed over."""

    def __init__(self, path: Path) -> None:
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read keys file {path}: {getattr(error, 'strerror', None) or 'not text'}"
            ) from None
        self._guesses = [
            Guess(_key(path, number, line), f"{path.name}, line {number}")
            for number, line in enumerate(lines, start=1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not self._guesses:
            raise UsageError(f"keys file {path} holds no key: give one signed 64-bit integer a line")

    def __len__(self) -> int:
        return len(self._guesses)

    def __iter__(self) -> Iterator[Guess]:
        return iter(self._guesses)


def _key(path: Path, number: int, line: str) -> int:
    """The line is not repeated: someone may have given a private key's file."""
    try:
        key = int(line)
    except ValueError:
        key = HIGHEST + 1
    if not LOWEST <= key <= HIGHEST:
        raise UsageError(f"keys file {path}, line {number}: not a signed 64-bit integer; give one a line")
    return key
