"""Doubts about results: flags that concern more than a few examples, and attacks that beat those with gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench import registry
from bench.api import BenchError, flags
from bench.store import on_sources, queries, schema, writer
from bench.store.database import retry_transient
from bench.store.on_sources import OnSource
from bench.store.queries import Board, Cell

TRUST = {None: 2, schema.JUDGED: 1, schema.UNJUDGED: 0}
"""How far a cell is trusted in what it says of its source, by where it is from."""
MANY = 10
"""From so many successes on a source on, it says something that none carries over."""


@retry_transient
def update(database: Database, board_id: int) -> None:
    """Writes the doubts about every finished cell of a board to the store, in words for people, where they are others.

    What the check of a source says of its cells is no part of them: it is read beside them (`bench.store.queries`).
    """
    stored = writer.doubts_of(database, board_id)
    for (attack_id, source_id), words in found(database, board_id).items():
        if words != stored.get((attack_id, source_id)):
            writer.set_doubts(database, (board_id, attack_id, source_id), words)


def put(connection: Connection, board_id: int) -> None:
    """`update` inside a transaction, which has written to the board."""
    for (attack_id, source_id), words in found(connection, board_id).items():
        writer.put_doubts(connection, (board_id, attack_id, source_id), words)


def found(database: Database | Connection, board_id: int) -> dict[tuple[int, int], dict[str, str]]:
    """The doubts about every finished cell of a board, by attack and source."""
    board = next(board for board in queries.boards(database, board_id))
    done = [cell for cell in board.cells if cell.status == "done"]
    doubts = {}
    for source_id in {cell.source_id for cell in done}:
        own = [cell for cell in done if cell.source_id == source_id]
        seen = {c.attack_id: on_sources.successes(database, board, c) for c in own}
        free = {c.attack_id: gradient_free(c) for c in own}
        by_gradients = {
            c.attack_id: _by_gradients(c.parts, free[c.attack_id], seen[c.attack_id])
            for c in own
            if c.attack not in free[c.attack_id]
        }
        for cell in own:
            counts, examined = dict(cell.flags), dict(cell.examined)
            if cell.attack in free[cell.attack_id]:
                others = [by_gradients[c.attack_id] for c in own if c.attack_id in by_gradients and _heard(c, cell)]
                counts[flags.SQUARE_WINS], examined[flags.SQUARE_WINS] = beats_gradients(seen[cell.attack_id], others)
            own_words = _words(counts, examined, cell.n_done)
            doubts[cell.attack_id, source_id] = own_words | _not_carried_over(database, board, cell)
    return doubts


def _heard(other: Cell, cell: Cell) -> bool:
    """Whether what one cell says of its source may raise or settle a doubt about another.

    No referee judges that: so somebody else's results never speak for one's own, nor those that were not judged for
    those that were.
    """
    return TRUST[other.imported] >= TRUST[cell.imported]


def beats_gradients(one: OnSource, by_gradients: Sequence[OnSource]) -> tuple[int, int]:
    """How many examples an attack without gradients broke that no gradient attack did (`flags.SQUARE_WINS`), of how many.

    `by_gradients` has what each gradient attack broke, on the same source, examples and ball. What none of them was
    shown says nothing.
    """
    if not by_gradients:
        return 0, 0
    compared = one.shown & np.logical_or.reduce([other.shown for other in by_gradients])
    missed = one.broken & ~np.logical_or.reduce([other.broken for other in by_gradients])
    return int((compared & missed).sum()), int(compared.sum())


def _by_gradients(parts: Sequence[str], free: set[str], one: OnSource) -> OnSource:
    """What an attack broke, without what a part of it broke that uses no gradient."""
    by_free = np.isin(one.part, [place for place, name in enumerate(parts) if name in free])
    return dataclasses.replace(one, broken=one.broken & ~by_free)


def _words(counts: Mapping[str, int], examined: Mapping[str, int], examples: int) -> dict[str, str]:
    """The doubts that so many flags raise, each with the number of examples it concerns, of those it was looked for on."""
    found = {}
    for name, count in counts.items():
        looked_at = examined.get(name, examples)
        if count > looked_at:  # counted by the engine too, on all examples
            looked_at = examples
        if flags.is_doubt(name, count, looked_at):
            found[name] = f"{flags.MEANINGS.get(name, name)} ({count} of {looked_at} examples)"
    return found


def _not_carried_over(database: Database | Connection, board: Board, cell: Cell) -> dict[str, str]:
    """The doubt about an attack that succeeds many times on its source, and never on the defended model.

    One that was shown only what others had left says nothing: what it was not shown carries over more easily.
    """
    successes, carried = (0, 0) if cell.on_survivors else on_sources.carried_over(database, board, cell)
    if carried or successes < MANY:
        return {}
    meaning = flags.MEANINGS[flags.NOT_CARRIED_OVER]
    return {flags.NOT_CARRIED_OVER: f"{meaning} ({carried} of {successes} successes)"}


def gradient_free(cell: Cell) -> set[str]:
    """What uses no gradient, by name, of a cell's attack and its parts: as the engine that is installed declares it.

    Of one that is not, what is stored; without a word everything is taken for an attack with gradients.
    """
    settings = {name: value for name, value in cell.attack_settings.items() if name != "seed"}
    try:
        engine = registry.engine(cell.attack, settings)
    except BenchError:
        return set(cell.attack_about.gradient_free)
    return {name for name, part in {cell.attack: engine, **engine.parts}.items() if not part.needs_gradient}
