"""Everything that reads: cells, Best Known and Best Adversary, as plain values. The leaderboard imports this alone.

Only complete cells inside the threat model count towards Best Known and Best Adversary: a cell that is not complete
must never look robust. What was left out is said with the number. A cell on what other attacks had left (`completeness`)
has no accuracy of its own, only bounds.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench.store import about, coverage, health, key_worth, ranking, schema
from bench.store.best_known import Bounds, Rounded, best, judged_rounded, rows_of, withstanding
from bench.store.coverage import Coverage, Required
from bench.store.database import reading
from bench.store.descriptions import AttackAbout, SourceAbout, read_attack, read_source
from bench.store.health import SourceHealth
from bench.store.key_worth import KeyWorth
from bench.store.schema import ALL, CLEAN, SURVIVORS, UNJUDGED


@dataclasses.dataclass(frozen=True)
class Cell:
    """One attack from one source on one board."""

    attack_id: int
    source_id: int
    attack: str
    attack_settings: dict[str, Any]
    source: str
    strategy: str
    inside_threat_model: bool
    status: str
    n_done: int
    """Examples that it was shown, and has a row of."""
    n_correct: int
    """Those of them that are right."""
    gradients: int
    queries: int
    seconds: float
    flags: dict[str, int]
    doubts: dict[str, str]
    error: str | None
    updated: str
    imported: str | None
    """None for results of this database's own runs; of others', whether they were judged here: judged, or unjudged."""
    parts: tuple[str, ...]
    """The names of the engines that the attack is made of, if of several, as `result.part` counts them."""
    attack_about: AttackAbout
    source_about: SourceAbout
    examined: dict[str, int] = dataclasses.field(default_factory=dict)
    """On how many examples a flag was looked for, where not on all; empty if no probe has looked at its attack."""
    rounded: Rounded | None = None
    """The same of the images rounded to eight bits; None unless all of them were judged so."""
    n_examples: int = 0
    """Of the board."""
    scope: str = ALL

    @property
    def accuracy(self) -> float | None:
        """Of what it was shown; None for one that was shown what other attacks had left, of which it says too little."""
        return None if self.on_survivors or not self.n_done else self.n_correct / self.n_done

    @property
    def on_survivors(self) -> bool:
        """Whether it was shown only some of the examples, those that had withstood other attacks."""
        return self.scope == SURVIVORS and self.n_done < self.n_examples

    @property
    def broken(self) -> int:
        """How many of the examples that it was shown are wrong."""
        return self.n_done - self.n_correct

    @property
    def bounds(self) -> Bounds:
        """How many of all examples may be right under it."""
        return Bounds(self.n_correct, self.n_examples - self.broken)

    @property
    def complete(self) -> bool:
        """Whether all of it is there and was judged: by this database's own run, or image by image when it was imported."""
        return self.status == "done" and self.imported != UNJUDGED

    @property
    def reduced(self) -> str:
        """How much less its attack tries than it was published with; nothing if it does not."""
        return self.attack_about.reduced


@dataclasses.dataclass(frozen=True)
class Board:
    """A defence on a dataset in a norm: its cells, and the numbers over all of them. Counts are of examples."""

    id: int
    defence_id: int
    defence: str
    defence_settings: dict[str, Any]
    description: str
    keyed: bool
    key_id: str | None
    weights_sha256: str
    dataset: str
    examples_sha256: str
    """What its images and labels are known by: boards with the same one may be compared example by example."""
    norm: str
    epsilon: float
    n_examples: int
    preset: str
    updated: str
    clean: Cell | None
    cells: tuple[Cell, ...]
    best_known: int | None
    adversaries: dict[str, Bounds]
    """Best Adversary by engine: how many examples it may leave right, which is one number where its cells saw them all."""
    required: Required | None
    """The cells that its latest run's preset asks for; None where nobody has said."""
    health: dict[int, SourceHealth] = dataclasses.field(default_factory=dict)
    """What was checked of its sources, by their ids."""
    best_known_rounded: int | None = None
    """Best Known over the images rounded to eight bits; None unless all counted cells were judged so, on all examples."""
    key_worth: KeyWorth | None = None
    """What is left of Best Known with more than the threat model allows; None without a key, or without Best Known."""

    @property
    def scope(self) -> str:
        """`survivors` if any of its cells was shown only what other attacks had left."""
        return SURVIVORS if any(cell.on_survivors for cell in self.cells) else ALL

    @property
    def best_adversary(self) -> dict[str, int]:
        """Best Adversary by engine, as far as it is known."""
        return {engine: bounds.least for engine, bounds in self.adversaries.items() if bounds.exact}

    @property
    def coverage(self) -> Coverage | None:
        """How many of the required cells are complete and count; None if it is not known which are required."""
        return coverage.of(self.required, (f"{cell.attack}@{cell.source}" for cell in self.counted))

    @property
    def counted(self) -> tuple[Cell, ...]:
        """The cells behind Best Known."""
        return tuple(cell for cell in self.cells if counts(cell))

    @property
    def left_out(self) -> tuple[Cell, ...]:
        """The cells of the threat model that are not complete, and so not behind Best Known."""
        return tuple(
            cell
            for cell in self.cells
            if cell.inside_threat_model and cell.status != "done" and cell.imported != UNJUDGED
        )

    @property
    def imported(self) -> dict[str, int]:
        """How many cells were imported, by whether they were judged here: judged, or unjudged."""
        return dict(collections.Counter(cell.imported for cell in self.cells if cell.imported))

    @property
    def health_by_name(self) -> dict[str, SourceHealth]:
        """What was checked of its sources, by their names."""
        names = {cell.source_id: cell.source for cell in self.cells}
        return {names[source]: found for source, found in self.health.items() if source in names}

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The sources of attacks with gradients that nothing is known of: no doubt about them says nothing."""
        found = {
            cell.source
            for cell in self.cells
            if cell.attack not in cell.attack_about.gradient_free
            and not (cell.source_id in self.health and self.health[cell.source_id].error is None)
        }
        return tuple(sorted(found))

    @property
    def reduced(self) -> tuple[Cell, ...]:
        """The cells behind Best Known whose attacks try less than they were published with."""
        return tuple(cell for cell in self.counted if cell.reduced)

    def is_reduced(self, engine: str) -> bool:
        """Whether that is so of any cell behind an engine's Best Adversary."""
        return any(cell.attack == engine for cell in self.reduced)

    @property
    def partial(self) -> bool:
        return self.best_known is None or bool(self.left_out)


def boards(database: Database | Connection, only: int | None = None) -> list[Board]:
    """Every board (or the one of this id), in the order of `ranking.place`."""
    defence = schema.defence.c
    query = sa.select(
        schema.board, defence.name, defence.params_json, defence.keyed, defence.key_id, defence.description,
        defence.weights_sha256,
    ).join(schema.defence, schema.board.c.defence_id == schema.defence.c.id)  # fmt: skip
    if only is not None:
        query = query.where(schema.board.c.id == only)
    with reading(database) as connection:
        found = [_board(connection, row) for row in connection.execute(query).all()]
    return sorted(found, key=ranking.place)


def examples_done(database: Database, board: str, attack: str, source: str) -> int:
    """How many examples of the cell with these fingerprints are stored."""
    query = (
        sa.select(schema.cell.c.n_done)
        .join(schema.board, schema.cell.c.board_id == schema.board.c.id)
        .join(schema.attack, schema.cell.c.attack_id == schema.attack.c.id)
        .join(schema.source, schema.cell.c.source_id == schema.source.c.id)
        .where(
            schema.board.c.fingerprint == board,
            schema.attack.c.fingerprint == attack,
            schema.source.c.fingerprint == source,
        )
    )
    with database.connect() as connection:
        return int(connection.execute(query).scalar() or 0)


def counts(cell: Cell) -> bool:
    """Whether a cell counts towards Best Known and Best Adversary, and every number that is made of several cells.

    The one rule: it is of the threat model, complete and judged. Others are shown and marked.
    """
    return cell.inside_threat_model and cell.complete


def attack_names(cells: Iterable[Cell]) -> dict[int, str]:
    """What the attacks of a board's cells are called, by their ids: the engine, whatever its settings on each source.

    Settings for a source that has others of the same engine already are told apart by a number.
    """
    sources: dict[int, set[int]] = {}
    engines: dict[int, str] = {}
    for cell in cells:
        sources.setdefault(cell.attack_id, set()).add(cell.source_id)
        engines[cell.attack_id] = cell.attack
    taken: dict[str, set[int]] = {}
    names: dict[int, str] = {}
    for identity in sorted(engines):
        name, number = engines[identity], 2
        while sources[identity] & taken.get(name, set()):
            name, number = f"{engines[identity]} ({number})", number + 1
        taken.setdefault(name, set()).update(sources[identity])
        names[identity] = name
    return names


def _board(connection: Connection, row: Any) -> Board:
    known = health.of_board(connection, row.id)
    cells = [_with_health(cell, known.get(cell.source_id)) for cell in _cells(connection, row.id, row.n_examples)]
    clean = next((cell for cell in cells if cell.attack == CLEAN), None)
    attacks = tuple(cell for cell in cells if cell.attack != CLEAN)
    counted = [cell for cell in attacks if counts(cell)]
    clean_done = clean is not None and counts(clean)
    best_known: int | None = None
    adversaries: dict[str, Bounds] = {}
    rounded, worth = None, None
    if clean is not None and clean_done and counted:
        best_known, adversaries = best(connection, row.id, [clean, *counted], cells, row.n_examples)
        if all(cell.rounded is not None and not cell.on_survivors for cell in counted):
            rounded = withstanding(connection, row.id, [clean, *counted], cells, rounded=True)
        if row.keyed:
            worth = key_worth.measured(connection, row.id, [clean, *counted], cells)
    latest = connection.execute(
        sa.select(schema.run.c.preset)
        .join(schema.cell, schema.cell.c.run_id == schema.run.c.id)
        .where(schema.cell.c.board_id == row.id)
        .order_by(schema.cell.c.imported.is_not(None), schema.run.c.id.desc())  # one's own come first
        .limit(1)
    ).scalar()
    return Board(
        id=row.id,
        defence_id=row.defence_id,
        defence=row.name,
        defence_settings=json.loads(row.params_json),
        description=row.description,
        keyed=row.keyed,
        key_id=row.key_id,
        weights_sha256=row.weights_sha256,
        dataset=row.dataset,
        examples_sha256=row.examples_sha256,
        norm=row.norm,
        epsilon=row.epsilon,
        n_examples=row.n_examples,
        preset=latest or "",
        clean=clean if clean_done else None,
        updated=max((cell.updated for cell in cells), default=""),
        cells=attacks,
        best_known=best_known,
        adversaries=adversaries,
        health=known,
        required=coverage.from_json(row.required_json),
        best_known_rounded=rounded,
        key_worth=worth,
    )


def _with_health(cell: Cell, found: SourceHealth | None) -> Cell:
    """A cell with the doubts that the check of its source raises, if it is one's own and of an attack with gradients."""
    if found is None or cell.imported is not None or cell.attack in cell.attack_about.gradient_free:
        return cell
    return dataclasses.replace(cell, doubts={**found.doubts(), **cell.doubts})


def _cells(connection: Connection, board_id: int, n_examples: int) -> list[Cell]:
    query = (
        sa.select(
            schema.cell,
            schema.attack.c.name.label("attack"),
            schema.attack.c.params_json,
            schema.attack.c.about_json.label("attack_about"),
            schema.source.c.name.label("source"),
            schema.source.c.about_json.label("source_about"),
        )
        .join(schema.attack, schema.cell.c.attack_id == schema.attack.c.id)
        .join(schema.source, schema.cell.c.source_id == schema.source.c.id)
        .where(schema.cell.c.board_id == board_id)
        .order_by(schema.attack.c.name, schema.source.c.name, schema.attack.c.id, schema.source.c.id)
    )
    rounded = judged_rounded(connection, board_id)
    return [
        Cell(
            row.attack_id,
            row.source_id,
            row.attack,
            json.loads(row.params_json),
            row.source,
            row.strategy,
            row.inside_threat_model,
            row.status,
            row.n_done,
            row.n_correct,
            row.gradients,
            row.queries,
            row.seconds,
            json.loads(row.flags_json),
            json.loads(row.doubts_json),
            row.error,
            row.updated,
            row.imported,
            tuple(map(str, json.loads(row.parts_json))),
            read_attack(row.attack, about.from_json(row.attack_about)),
            read_source(row.source, row.strategy, about.from_json(row.source_about)),
            json.loads(row.examined_json),
            _of_all(rounded.get((row.attack_id, row.source_id)), row.n_done),
            n_examples,
            row.scope,
        )
        for row in connection.execute(query)
    ]


def _of_all(rounded: Rounded | None, n_done: int) -> Rounded | None:
    """What was judged rounded of a cell, if all of it was: a part would be of other examples."""
    return rounded if rounded is not None and rounded.n_done == n_done else None


def best_by_source(database: Database, board: Board) -> dict[str, int]:
    """Best Known against each source alone, over all its attacks: what is right in all of its cells."""
    if board.clean is None or not board.counted:
        return {}
    result, counted = schema.result.c, [board.clean, *board.counted]
    per_source = (
        sa.select(result.example_idx, result.source_id, sa.func.min(result.correct).label("ok"), sa.func.count())
        .where(*rows_of(board.id, counted, [board.clean, *board.cells]))
        .group_by(result.example_idx, result.source_id)
    )
    names = {cell.source_id: cell.source for cell in board.counted}
    with database.connect() as connection:
        rows = connection.execute(per_source).all()
    sizes = collections.Counter(cell.source_id for cell in counted)
    right = {(example, source) for example, source, ok, count in rows if ok and count == sizes[source]}
    return {
        name: sum(1 for example, source in right if source == identity and (example, board.clean.source_id) in right)
        for identity, name in names.items()
    }
