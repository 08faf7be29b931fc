"""Judges the stored images of a board again, with the weights and the key it was judged with, and compares."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench import registry
from bench.api import BenchError
from bench.data import datasets
from bench.evaluation import images
from bench.evaluation.stored_board import Row, StoredBoard
from bench.in_memory import NotHere
from bench.models import artifacts, network_size
from bench.models import recipe as recipes
from bench.models.architecture import NotInstalled
from bench.store import identity, schema, shards
from bench.support.fingerprint import fingerprint
from bench.support.progress import Tracker
from bench.vault.base import Defended, Judging, Vault

MARGIN_TOLERANCE = 1e-3  # another machine may round differently; a verdict may not differ


class CannotJudge(BenchError):
    """What is needed to judge a board is not here; nothing is known against it."""


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """What somebody else's results bring with them, and how far it is trusted."""

    artifacts: Path | None = None
    """A folder of artifacts besides those of this machine."""
    factories: frozenset[str] = frozenset()
    """Code that may be run to build their networks: the user has named it."""


class Judge:
    """Judges boards one after the other; those of one defended model share its referee."""

    def __init__(self, folder: Path, vault: Vault, elsewhere: Elsewhere, tracker: Tracker) -> None:
        self._folder, self._vault, self._elsewhere, self._tracker = folder, vault, elsewhere, tracker
        self._referees: dict[tuple[int, str, int], tuple[Judging, datasets.Split]] = {}

    def judge(self, board: StoredBoard) -> None:
        """Judges every finished shard of a board; raises CannotJudge where what that takes is not here."""
        shared = (board.row["defence_id"], board.row["dataset"], board.row["n_examples"])
        if shared not in self._referees:
            self._referees[shared] = _referee(board, self._vault, self._elsewhere)
        referee, examples = self._referees[shared]
        if examples.fingerprint != board.row["examples_sha256"]:
            raise CannotJudge(
                f"the first {board.row['n_examples']} images of {board.row['dataset']} are not those it was judged on"
            )
        clean = examples.unit()
        with board.database.connect() as connection:
            for cell in board.cells(connection):
                rows, without_images = board.rows(connection, cell), 0
                for shard in board.shards(connection, cell):
                    if _has_images(board, cell, shard):
                        self._judge_shard(board, referee, clean, examples.labels, cell, shard, rows)
                    else:
                        without_images += len(shards.examples_of(shard))
                    self._tracker.advance(len(shards.examples_of(shard)), board.name)
                board.judged(cell, len(rows), without_images)

    def _judge_shard(
        self,
        board: StoredBoard,
        referee: Judging,
        clean: np.ndarray,
        labels: np.ndarray,
        cell: Row,
        shard: Row,
        rows: Mapping[int, Row],
    ) -> None:
        own = list(shards.examples_of(shard))
        rounded = any(rows[index]["rounded"] is not None for index in own if index in rows)
        try:
            adversarial = clean[own] if _is_clean(board, cell) else self._images(board, cell, shard)
            verdict = referee.judge(
                clean[own], labels[own], adversarial, board.row["norm"], board.row["epsilon"], rounded
            )
        except BenchError as error:
            board.problem(cell, f"{shards.named(own)}: {error}")
            return
        board.findings.rows += len(own)
        for offset, index in enumerate(own):
            if index not in rows:
                continue  # said already
            row = rows[index]
            for name, judged in (
                ("pred", int(verdict.pred[offset])),
                ("correct", int(verdict.correct[offset])),
                ("label", int(labels[index])),
                ("rounded", None if verdict.rounded is None else int(verdict.rounded[offset])),
            ):
                if row[name] != judged and not (name == "rounded" and row[name] is None):  # None: it was not asked
                    board.problem(cell, f"example {index}: {name} is stored as {row[name]}, judged {judged}")
            for name, value in (("margin", verdict.margin[offset]), ("distance", verdict.distance[offset])):
                if not abs(row[name] - value) <= MARGIN_TOLERANCE:  # of NaN, nothing is within anything
                    board.problem(cell, f"example {index}: {name} is stored as {row[name]:.6g}, judged {value:.6g}")

    def _images(self, board: StoredBoard, cell: Row, shard: Row) -> np.ndarray:
        own = identity.cell(board.row, board.attack(cell), board.source(cell))
        if not images.are_of(own, shard["images_file"]):
            raise BenchError(f"{shard['images_file']} is of another cell")
        return images.load(self._folder, shard["images_file"], shard["images_sha256"])


def _is_clean(board: StoredBoard, cell: Row) -> bool:
    """Whether it is the cell of the unperturbed images, which is judged from the dataset."""
    return bool(board.attack(cell)["name"] == schema.CLEAN)


def _has_images(board: StoredBoard, cell: Row, shard: Row) -> bool:
    """Whether there is something to judge a shard's rows by."""
    return _is_clean(board, cell) or shard["images_file"] is not None


def _dataset(board: StoredBoard) -> str:
    """The dataset by name, or by the path that a run of this database's own had it from."""
    name = str(board.row["dataset"])
    with board.database.connect() as connection:
        own = {cell["run_id"] for cell in board.cells(connection) if cell["imported"] is None}
    for run in sorted(own):
        path = Path(json.loads(board.tables["run"][run]["spec_json"])["dataset"])
        if path.suffix == ".npz" and path.stem == name and path.exists():
            return str(path)
    return name


def _referee(board: StoredBoard, vault: Vault, elsewhere: Elsewhere) -> tuple[Judging, datasets.Split]:
    defence = board.defence
    artifact = artifacts.with_weights(defence["weights_sha256"], elsewhere.artifacts)
    if artifact is None:
        raise CannotJudge(f"the weights it was judged with ({defence['weights_sha256'][:12]}…) are not here")
    if fingerprint(artifact.spec) != artifact.fingerprint:
        raise BenchError(f"artifact {artifact.path}: its description was changed (it does not fit its fingerprint)")
    if defence["keyed"] and defence["key_id"] != vault.id:
        raise CannotJudge(
            f"it was judged with key '{defence['key_id']}', and this is key '{vault.id}': give --key-file"
        )
    try:
        dataset = datasets.load(_dataset(board))
        examples = dataset.examples(board.row["n_examples"])
        plugin = registry.defence(defence["name"], json.loads(defence["params_json"]))
        network = recipes.network_of(artifact.spec["recipe"])
    except BenchError as error:
        raise CannotJudge(str(error)) from error
    if (code := network.code()) and not artifacts.is_own(artifact) and code not in elsewhere.factories:
        raise CannotJudge(f"its network is made by {code}, code that is run only if you name it: --factory {code}")
    if plugin.version != defence["version"]:
        raise CannotJudge(f"{defence['name']} is of version {plugin.version} here, not {defence['version']}")
    shape = plugin.output_shape(dataset.shape)
    if not artifacts.is_own(artifact) and code is None:
        network_size.check(network, shape, len(dataset.classes), artifact.weights)
    model = Defended(
        defence["name"],
        json.loads(defence["params_json"]),
        defence["keyed"],
        network,
        artifact.weights.absolute(),
        artifact.weights_sha256,
        dataset.shape,
        len(dataset.classes),
    )
    try:
        return vault.referee(model), examples
    except (NotHere, NotInstalled) as error:
        raise CannotJudge(str(error)) from error
