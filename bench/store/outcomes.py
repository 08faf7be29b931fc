"""Everything a board's pages are made of: each answer of the defended model, the runs behind it, and its image files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.store import schema, shards
from bench.store.queries import Board, Cell, counts

_ROWS_AT_ONCE = 20_000
_ROW = np.dtype("i8, i8, f4")
_ROW.names = ("place", "answer", "margin")
_ID = 1 << 20  # ids of attacks and sources, and numbers of classes, are below this


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """A board's answers, N examples × its cells, the unperturbed images first (if they are complete)."""

    cells: tuple[Cell, ...]
    labels: np.ndarray  # N, int32; -1 where no cell has reached the example
    pred: np.ndarray  # N×cells, int32; -1 where the cell was not shown the example
    correct: np.ndarray  # N×cells, bool; False where the cell was not shown the example
    margin: np.ndarray  # N×cells, float32

    @property
    def shown(self) -> np.ndarray:
        """Which examples each cell was shown (N×cells, bool)."""
        return np.asarray(self.pred >= 0)

    @property
    def wrong(self) -> np.ndarray:
        """What each cell was shown, and broke (N×cells, bool)."""
        return np.asarray(self.shown & ~self.correct)

    @property
    def counted(self) -> list[int]:
        """The columns behind Best Known, without the unperturbed images."""
        return [i for i, cell in enumerate(self.cells) if cell.attack != schema.CLEAN and counts(cell)]

    @property
    def clean(self) -> np.ndarray | None:
        """Which examples are right without a perturbation (N, bool), if that is known of all of them."""
        return self.correct[:, 0] if self.cells and self.cells[0].attack == schema.CLEAN else None


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A call of `bench run` that worked on a board."""

    id: int
    started: str
    command: str
    preset: str
    spec: dict[str, Any]
    versions: dict[str, str]
    device: str
    git_commit: str | None
    order: Mapping[str, Mapping[str, Sequence[str]]] = dataclasses.field(default_factory=dict)
    """The names of its cells in the order that examples went through them, by defence as it was asked for and norm; empty
    where every attack was shown everything."""


@dataclasses.dataclass(frozen=True)
class ImageFile:
    """Where the adversarial images of some examples of a cell are kept."""

    examples: Sequence[int]
    name: str
    sha256: str | None


def outcomes(database: Database, board: Board) -> Outcomes:
    """Reads a whole board in one pass, in the order of the primary key."""
    cells = ((board.clean,) if board.clean else ()) + board.cells
    shape = (board.n_examples, len(cells))
    labels = np.full(board.n_examples, -1, np.int32)
    pred, correct, margin = np.full(shape, -1, np.int32), np.zeros(shape, bool), np.zeros(shape, np.float32)
    rows = _rows(database, board.id)
    example, own = np.divmod(rows["place"], _ID * _ID)
    label, answer = np.divmod(rows["answer"], 2 * _ID)
    columns = np.full(len(own), -1)
    numbers, first = np.unique([cell.attack_id * _ID + cell.source_id for cell in cells], return_index=True)
    if len(numbers):
        found = np.searchsorted(numbers, own).clip(max=len(numbers) - 1)
        columns = np.where(numbers[found] == own, first[found], -1)  # -1: a `clean` that does not count
    known = columns >= 0
    judged = np.array([cell.imported != schema.UNJUDGED for cell in cells] + [False])  # -1 is the last
    labels[example[judged[columns]]] = label[judged[columns]]
    at = example[known], columns[known]
    pred[at], correct[at], margin[at] = answer[known] // 2, answer[known] % 2 == 1, rows["margin"][known]
    return Outcomes(cells, labels, pred, correct, margin)


def runs(database: Database, board_id: int) -> list[RunRecord]:
    """The runs that made a board's cells, the latest first."""
    own = sa.select(schema.cell.c.run_id).where(schema.cell.c.board_id == board_id)
    query = sa.select(schema.run).where(schema.run.c.id.in_(own)).order_by(schema.run.c.id.desc())
    with database.connect() as connection:
        return [
            RunRecord(
                row.id, row.started, row.command, row.preset, json.loads(row.spec_json), json.loads(row.versions_json),
                row.device, row.git_commit, json.loads(row.order_json or "{}"),
            )
            for row in connection.execute(query)
        ]  # fmt: skip


def order_of(board: Board, made_by: Sequence[RunRecord]) -> Sequence[str]:
    """The names of a board's cells in the order that examples went through them, by the latest of its runs that has one."""
    for run in made_by:
        own = [(_settings_shared(request, board), order) for request, order in run.order.items()]
        chosen = max(
            ((count, order) for count, order in own if count is not None), key=lambda one: one[0], default=None
        )
        if chosen is not None and board.norm in chosen[1]:
            return chosen[1][board.norm]
    return ()


def _settings_shared(request: str, board: Board) -> int | None:
    """How many settings of `name[setting=value,…]` a board's defence has; None if it is another, or has others."""
    name, _, rest = request.partition("[")
    settings = [part.partition("=") for part in rest.rstrip("]").split(",") if part]
    own = {key: str(value) for key, value in board.defence_settings.items()}
    same = name == board.defence and all(own.get(key.strip()) == value.strip() for key, _, value in settings)
    return len(settings) if same else None


def image_files(database: Database, board_id: int) -> dict[tuple[int, int], list[ImageFile]]:
    """The kept adversarial images of a board by attack and source id, in the order of the examples."""
    shard = schema.shard.c
    query = (
        sa.select(schema.shard)
        .where(shard.board_id == board_id, shard.status == "done", shard.images_file.is_not(None))
        .order_by(shard.start)
    )
    files: dict[tuple[int, int], list[ImageFile]] = {}
    with database.connect() as connection:
        for row in connection.execute(query).mappings():
            file = ImageFile(shards.examples_of(row), row["images_file"], row["images_sha256"])
            files.setdefault((row["attack_id"], row["source_id"]), []).append(file)
    return files


def _rows(database: Database, board_id: int) -> np.ndarray:
    """The board's rows as one array.

    Reading ten million rows costs by the column and by the object, so several columns come as one number, and the
    driver's own tuples are taken past SQLAlchemy's row objects.
    """
    result = schema.result.c
    place = (sa.cast(result.example_idx, sa.BigInteger) * _ID + result.attack_id) * _ID + result.source_id
    answer = (sa.cast(result.label, sa.BigInteger) * _ID + result.pred) * 2 + result.correct
    query = sa.select(place, answer, result.margin).where(result.board_id == board_id)
    parts = [np.empty(0, _ROW)]
    with database.connect() as connection:
        cursor: Any = connection.execute(query).cursor
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            parts.append(np.fromiter(rows, _ROW, len(rows)))
    return np.concatenate(parts)
