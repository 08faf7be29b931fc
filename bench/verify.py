"""Judges every stored adversarial image again from nothing, and compares with every stored row."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from bench import artifacts, data, images, models, registry
from bench.api import BenchError
from bench.keys import PrivateKey
from bench.referee import Referee
from bench.store import schema
from bench.training import Recipe

MARGIN_TOLERANCE = 1e-3  # another machine may round differently; a verdict may not differ


@dataclasses.dataclass
class Findings:
    """What a verification saw."""

    rows: int = 0
    without_images: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)


def verify(engine: Engine, folder: Path, key: PrivateKey, say: Callable[[str], None]) -> Findings:
    """Goes over every board of the database."""
    findings = Findings()
    with engine.connect() as connection:
        boards = connection.execute(
            sa.select(
                schema.board,
                schema.defence.c.name,
                schema.defence.c.params_json,
                schema.defence.c.keyed,
                schema.defence.c.key_id,
                schema.defence.c.weights_sha256,
            )
            .join(schema.defence, schema.board.c.defence_id == schema.defence.c.id)
            .order_by(schema.board.c.id)
        ).all()
    for board in boards:
        say(f"verifying {board.name}, {board.norm}")
        try:
            _verify_board(engine, folder, key, board, findings)
        except BenchError as error:
            findings.problems.append(f"board {board.id} ({board.name}, {board.norm}): {error}")
    return findings


def _verify_board(engine: Engine, folder: Path, key: PrivateKey, board: Any, findings: Findings) -> None:
    referee, examples = _referee(key, board)
    clean = examples.unit()
    with engine.connect() as connection:
        cells = connection.execute(
            sa.select(schema.cell, schema.attack.c.name.label("attack"), schema.source.c.name.label("source"))
            .join(schema.attack, schema.cell.c.attack_id == schema.attack.c.id)
            .join(schema.source, schema.cell.c.source_id == schema.source.c.id)
            .where(schema.cell.c.board_id == board.id)
        ).all()
        for cell in cells:
            where = f"board {board.id} ({board.name}, {board.norm}), {cell.attack}@{cell.source}"
            own = [
                getattr(schema.result.c, name) == getattr(cell, name) for name in ("board_id", "attack_id", "source_id")
            ]
            rows = {r.example_idx: r for r in connection.execute(sa.select(schema.result).where(*own))}
            shards = connection.execute(
                sa.select(schema.shard).where(
                    *[getattr(schema.shard.c, n) == getattr(cell, n) for n in ("board_id", "attack_id", "source_id")],
                    schema.shard.c.status == "done",
                )
            ).all()
            _check_totals(cell, rows, board, where, findings)
            for shard in shards:
                _verify_shard(referee, clean, examples.labels, folder, board, cell, shard, rows, where, findings)


def _check_totals(cell: Any, rows: dict[int, Any], board: Any, where: str, findings: Findings) -> None:
    correct = sum(row.correct for row in rows.values())
    if (cell.n_done, cell.n_correct) != (len(rows), correct):
        findings.problems.append(
            f"{where}: the cell says {cell.n_correct} of {cell.n_done} right, its rows say {correct} of {len(rows)}"
        )
    if (cell.status == "done") != (len(rows) == board.n_examples):
        findings.problems.append(f"{where}: status {cell.status} with {len(rows)} of {board.n_examples} rows")


def _verify_shard(
    referee: Referee,
    clean: np.ndarray,
    labels: np.ndarray,
    folder: Path,
    board: Any,
    cell: Any,
    shard: Any,
    rows: dict[int, Any],
    where: str,
    findings: Findings,
) -> None:
    span = slice(shard.start, shard.stop)
    try:
        if cell.attack == schema.CLEAN:
            adversarial = clean[span]
        elif shard.images_file is None:
            findings.without_images += shard.stop - shard.start
            return
        else:
            adversarial = images.load(folder, shard.images_file, shard.images_sha256)
        verdict = referee.judge(clean[span], labels[span], adversarial, board.norm, board.epsilon)
    except BenchError as error:
        findings.problems.append(f"{where}, examples {shard.start} to {shard.stop - 1}: {error}")
        return
    for offset, index in enumerate(range(shard.start, shard.stop)):
        findings.rows += 1
        row = rows.get(index)
        if row is None:
            findings.problems.append(f"{where}, example {index}: its row is missing")
            continue
        seen = {"pred": int(verdict.pred[offset]), "correct": int(verdict.correct[offset]), "label": int(labels[index])}
        for name, value in seen.items():
            if getattr(row, name) != value:
                findings.problems.append(
                    f"{where}, example {index}: {name} is stored as {getattr(row, name)}, judged {value}"
                )
        for name, value in (("margin", verdict.margin[offset]), ("distance", verdict.distance[offset])):
            if abs(getattr(row, name) - value) > MARGIN_TOLERANCE:
                findings.problems.append(
                    f"{where}, example {index}: {name} is stored as {getattr(row, name):.6g}, judged {value:.6g}"
                )


def _referee(key: PrivateKey, board: Any) -> tuple[Referee, data.Split]:
    artifact = next((a for a in artifacts.all_artifacts() if a.weights_digest == board.weights_sha256), None)
    if artifact is None:
        raise BenchError(f"the weights it was judged with ({board.weights_sha256[:12]}…) are not here any more")
    if board.keyed and board.key_id != key.id:
        raise BenchError(f"it was judged with key '{board.key_id}', and this is key '{key.id}': give --key-file")
    dataset = data.load(board.dataset)
    examples = dataset.examples(board.n_examples)
    if examples.fingerprint != board.examples_sha256:
        raise BenchError(f"the first {board.n_examples} images of {board.dataset} are not those it was judged on")
    defence = registry.create("defences", board.name, json.loads(board.params_json))
    recipe = Recipe.from_json(artifact.spec["recipe"])
    spec = models.ClassifierSpec(dataset, board.name, defence, None, recipe)
    return Referee(defence, models.load(spec, artifact), key if board.keyed else None, dataset.shape), examples
