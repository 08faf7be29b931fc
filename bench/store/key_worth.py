"""What a key is worth: Best Known, and what is left of it for who has the key, or may ask the defended model.

Who has more than the threat model allows can also do everything that it allows: what is left is right without a
perturbation, under every cell behind Best Known, and under every complete cell of the kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from bench.store.best_known import withstanding

if TYPE_CHECKING:
    from bench.store.queries import Cell

LEAKED, QUERIES = "key-leaked", "query"
"""The strategies, outside every threat model, of who has the key and of who may ask, as cells are stored with them."""


@dataclasses.dataclass(frozen=True)
class Left:
    """How many of the examples behind Best Known are left right."""

    n_correct: int
    reduced: bool = False
    """Whether an attack that says so tries less than it was published with."""


@dataclasses.dataclass(frozen=True)
class KeyWorth:
    """What is left of Best Known; None where no cell of the kind is complete."""

    leaked: Left | None
    """When the key is known."""
    queried: Left | None
    """When the defended model answers questions."""

    @property
    def measured(self) -> bool:
        return self.leaked is not None or self.queried is not None


def measured(connection: Connection, board_id: int, behind: Sequence[Cell], cells: Sequence[Cell]) -> KeyWorth:
    """Of a board whose Best Known is that of the cells `behind` it, the unperturbed images among them."""

    def left(strategy: str) -> Left | None:
        own = [cell for cell in cells if cell.strategy == strategy and not cell.inside_threat_model and cell.complete]
        if not own:
            return None
        return Left(withstanding(connection, board_id, behind, cells, besides=own), any(cell.reduced for cell in own))

    return KeyWorth(left(LEAKED), left(QUERIES))
