"""Doubts about results: flags that concern more than a few examples, and attacks that beat those with gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from sqlalchemy.engine import Engine as Database

from bench import registry
from bench.api import BenchError, Engine, flags
from bench.store import queries, writer
from bench.store.database import retry_transient
from bench.store.queries import Cell


@retry_transient
def update(database: Database, board_id: int) -> None:
    """Writes the doubts about every finished cell of a board to the store, in words for people."""
    for (attack_id, source_id), words in found(database, board_id).items():
        writer.set_doubts(database, (board_id, attack_id, source_id), words)


def found(database: Database, board_id: int) -> dict[tuple[int, int], dict[str, str]]:
    """The doubts about every finished cell of a board, by attack and source."""
    board = next(board for board in queries.boards(database, board_id))
    done = [cell for cell in board.cells if cell.status == "done"]
    doubts = {}
    for source_id in {cell.source_id for cell in done}:
        own = [cell for cell in done if cell.source_id == source_id]
        broken = {c.attack_id: queries.source_success(database, board, c) for c in own}
        with_gradient = [_by_gradients(c, *broken[c.attack_id]) for c in own if _uses_gradients(c.attack)]
        for cell in own:
            counts = dict(cell.flags)
            if not _uses_gradients(cell.attack):
                counts[flags.SQUARE_WINS] = beats_gradients(broken[cell.attack_id][0], with_gradient)
            doubts[cell.attack_id, source_id] = _words(counts, board.n_examples)
    return doubts


def beats_gradients(broken: np.ndarray, by_gradients: Sequence[np.ndarray]) -> int:
    """How many examples an attack without gradients broke (N, bool) that no gradient attack did: `flags.SQUARE_WINS`.

    `by_gradients` has what each gradient attack broke (N, bool), on the same source, examples and ball.
    """
    if not by_gradients:
        return 0
    return int((broken & ~np.logical_or.reduce(by_gradients)).sum())


def _by_gradients(cell: Cell, broken: np.ndarray, part: np.ndarray) -> np.ndarray:
    """What an attack broke (N, bool), without what a part of it broke that uses no gradient."""
    parts = cell.attack_settings.get("parts") or ()
    blind = [place for place, name in enumerate(parts) if not _uses_gradients(name)]
    return broken & ~np.isin(part, blind)


def _words(counts: Mapping[str, int], examples: int) -> dict[str, str]:
    """The doubts that so many flags raise, each with the number of examples it concerns."""
    found = flags.doubtful(counts, examples)
    return {name: f"{meaning} ({counts[name]} of {examples} examples)" for name, meaning in found.items()}


def _uses_gradients(attack: str) -> bool:
    try:
        plugin = registry.entry("attacks", attack).load()
    except BenchError:  # a plug-in of an earlier run that is not installed any more
        return True
    return issubclass(plugin, Engine) and plugin.needs_gradient
