"""Key searches in the store: what they found, and what writes them during a search."""

from __future__ import annotations

import collections
import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import schema, writer
from bench.store.database import retry_transient, writing
from bench.support.stats import at_least, wilson

GAP = 0.10
"""A key that is so much less accurate than the private one does not break a defence."""
FEWEST = 100


@dataclasses.dataclass(frozen=True)
class KeyGuess:
    """A guessed key and how the defended classifier did with it."""

    guess: int
    origin: str
    correct: int
    images: int
    stopped: int | None  # the images after which the race drops it; None if it never does
    seconds: float
    raced_seconds: float
    fresh_correct: int | None = None
    fresh_images: int | None = None
    """Fresh images, which only a guess that did well is scored on; None if it was not."""

    @property
    def accuracy(self) -> float:
        return self.correct / self.images

    @property
    def survived(self) -> bool:
        return self.stopped is None


@dataclasses.dataclass(frozen=True)
class KeySearch:
    """All guesses at one defended classifier's key on the same images, the best first."""

    id: int
    defence: str
    defence_settings: dict[str, Any]
    key_id: str | None
    weights_sha256: str
    dataset: str
    split: str  # the images' split: training, or test
    n_images: int
    inside_threat_model: bool
    defended_accuracy: float
    defended_images: int
    race_floor: float
    race_error: float
    command: str
    started: str
    updated: str
    guesses: tuple[KeyGuess, ...]

    @property
    def origins(self) -> dict[str, int]:
        """How the guesses were made: 'meta-seed', 'random', 'paper' or the name of a file, and how many of each."""
        return dict(collections.Counter(guess.origin.split(",")[0].rstrip("0123456789 ") for guess in self.guesses))

    @property
    def too_low(self) -> float:
        """An accuracy that is clearly not the private key's."""
        return self.defended_accuracy - min(GAP, self.defended_accuracy / 2)

    def is_candidate(self, guess: KeyGuess) -> bool:
        """Whether a guess may be as good as the private key: scored on all images, its interval reaches that accuracy.

        The interval's upper end is exceeded as rarely as the race loses a key, so the right key is seldom missed here. On
        few images many a wrong key is a candidate too: fresh images decide.
        """
        z = statistics.NormalDist().inv_cdf(1 - self.race_error)
        return guess.images == self.n_images and wilson(guess.correct, guess.images, z)[1] >= self.defended_accuracy

    def reached(self, guess: KeyGuess) -> bool:
        """Whether a guess does as well as the private key: a candidate that fresh images confirm.

        A key that is `too_low` passes them with a probability of `race_error` at most.
        """
        if guess.fresh_correct is None or guess.fresh_images is None or not self.is_candidate(guess):
            return False
        return at_least(guess.fresh_correct, guess.fresh_images, self.too_low) <= self.race_error

    @property
    def fresh_images_needed(self) -> int:
        """So many that the private key is missed, and one that is too low passes, each with probability `race_error`."""
        count = FEWEST
        while True:
            enough = next(k for k in range(count + 2) if at_least(k, count, self.too_low) <= self.race_error)
            if 1 - at_least(enough, count, self.defended_accuracy) <= self.race_error:
                return count
            count += max(FEWEST // 2, count // 8)

    @property
    def candidates(self) -> tuple[KeyGuess, ...]:
        """The guesses that may break the defence."""
        return tuple(guess for guess in self.guesses if self.is_candidate(guess))

    @property
    def found(self) -> tuple[KeyGuess, ...]:
        """The guesses that break the defence."""
        return tuple(guess for guess in self.guesses if self.reached(guess))


@retry_transient
def found(database: Database, defence: str | None = None, only: int | None = None) -> list[KeySearch]:
    """Every key search, or those on one defence, or the one of this id; in the order they were begun."""
    search, row_of = schema.key_search, schema.defence.c
    query = (
        sa.select(search, row_of.name, row_of.params_json, row_of.key_id, row_of.weights_sha256)
        .join(schema.defence, search.c.defence_id == schema.defence.c.id)
        .order_by(search.c.id)
    )
    if defence is not None:
        query = query.where(row_of.name == defence)
    if only is not None:
        query = query.where(search.c.id == only)
    with database.connect() as connection:
        return [
            KeySearch(
                id=row.id,
                defence=row.name,
                defence_settings=json.loads(row.params_json),
                key_id=row.key_id,
                weights_sha256=row.weights_sha256,
                dataset=row.dataset,
                split=row.split,
                n_images=row.n_images,
                inside_threat_model=row.inside_threat_model,
                defended_accuracy=row.defended_accuracy,
                defended_images=row.defended_images,
                race_floor=row.race_floor,
                race_error=row.race_error,
                command=row.command,
                started=row.started,
                updated=row.updated,
                guesses=_key_guesses(connection, row.id),
            )
            for row in connection.execute(query).all()
        ]


def _key_guesses(connection: Connection, search_id: int) -> tuple[KeyGuess, ...]:
    """The best first: those that stayed longest in the race, then by accuracy."""
    columns = [column for column in schema.key_guess.c if column.name != "search_id"]
    rows = connection.execute(sa.select(*columns).where(schema.key_guess.c.search_id == search_id)).all()
    guesses = (KeyGuess(**row._mapping) for row in rows)
    return tuple(sorted(guesses, key=lambda g: (-g.images, -g.correct, g.guess)))


def start(database: Database, values: Mapping[str, Any], command: str) -> int:
    """The id of the search with this fingerprint, made if it is not there."""
    now = writer.now()
    return writer.ensure(database, schema.key_search, {**values, "command": command, "started": now, "updated": now})


@retry_transient
def confirm(database: Database, search_id: int, guess: int, correct: int, images: int) -> None:
    """How a stored guess did on fresh images."""
    table = schema.key_guess
    with writing(database) as connection:
        connection.execute(
            sa.update(table)
            .where(table.c.search_id == search_id, table.c.guess == guess)
            .values(fresh_correct=correct, fresh_images=images)
        )


@retry_transient
def record(database: Database, search_id: int, command: str, guesses: Sequence[KeyGuess]) -> None:
    """Scored guesses, in one transaction.

    A guess that is there already is replaced if it is now scored on more images.
    """
    table = schema.key_guess
    with writing(database) as connection:
        rows = connection.execute(
            sa.select(table.c.guess, table.c.images).where(
                table.c.search_id == search_id, table.c.guess.in_([guess.guess for guess in guesses])
            )
        )
        there = {row.guess: row.images for row in rows}
        new = [guess for guess in guesses if guess.images > there.get(guess.guess, -1)]
        old = [guess.guess for guess in new if guess.guess in there]
        connection.execute(sa.delete(table).where(table.c.search_id == search_id, table.c.guess.in_(old)))
        if new:
            connection.execute(
                sa.insert(table), [{"search_id": search_id, **dataclasses.asdict(guess)} for guess in new]
            )
        connection.execute(
            sa.update(schema.key_search)
            .where(schema.key_search.c.id == search_id)
            .values(updated=writer.now(), command=command)
        )
