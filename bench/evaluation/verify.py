"""Judges every stored adversarial image again from nothing, and compares with everything that is stored about it."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Database

from bench import registry
from bench.api import BenchError
from bench.data import datasets
from bench.evaluation import doubts, images
from bench.evaluation.referee import Referee
from bench.keys import PrivateKey
from bench.models import artifacts, classifier
from bench.models import recipe as recipes
from bench.store import identity, row_format, schema, writer
from bench.support.fingerprint import fingerprint
from bench.support.progress import Track, Tracker, untracked

MARGIN_TOLERANCE = 1e-3  # another machine may round differently; a verdict may not differ

Row = Any  # a mapping from columns to values
Referees = dict[tuple[int, str, int], tuple[Referee, datasets.Split]]


class CannotJudge(BenchError):
    """What is needed to judge a board is not here; nothing is known against it."""


@dataclasses.dataclass
class Findings:
    """What a verification saw."""

    rows: int = 0
    without_images: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    unjudged: dict[int, str] = dataclasses.field(default_factory=dict)
    """Boards that could not be judged here, and why."""


def verify(
    database: Database, folder: Path, key: PrivateKey, track: Track = untracked, more_artifacts: Path | None = None
) -> Findings:
    """Goes over every board of the database. `more_artifacts` is a folder of artifacts besides those of this machine."""
    findings = Findings()
    with database.connect() as connection:
        things, rows = _things(connection), _rows_per_board(connection)
    _check_identities(things, findings)
    referees: Referees = {}
    with track("verifying", sum(rows.values())) as tracker:
        for board in things["board"].values():
            defence = things["defence"][board["defence_id"]]
            where, end = f"board {board['id']} ({defence['name']}, {board['norm']})", tracker.done + rows[board["id"]]
            check = BoardCheck(database, folder, things, board, defence, where, findings, referees, tracker)
            check.records()
            try:
                check.judge(key, more_artifacts)
            except CannotJudge as error:
                findings.unjudged[board["id"]] = f"{where}: {error}"
            except BenchError as error:
                findings.problems.append(f"{where}: {error}")
            tracker.skip(end - tracker.done)
    return findings


def _rows_per_board(connection: Connection) -> Mapping[int, int]:
    query = sa.select(schema.cell.c.board_id, sa.func.sum(schema.cell.c.n_done)).group_by(schema.cell.c.board_id)
    return collections.Counter({board: int(count) for board, count in connection.execute(query)})


def _things(connection: Connection) -> dict[str, dict[int, Row]]:
    tables = (schema.run, schema.defence, schema.attack, schema.source, schema.board)
    return {
        table.name: {row["id"]: row for row in connection.execute(sa.select(table).order_by(table.c.id)).mappings()}
        for table in tables
    }


def _check_identities(things: Mapping[str, Mapping[int, Row]], findings: Findings) -> None:
    """Every setting that made a number is in a fingerprint: of a defence, an attack, a source or a board."""
    defences = things["defence"]
    computed: dict[str, Callable[[Row], str]] = {
        "defence": identity.of_defence,
        "attack": identity.of_attack,
        "source": identity.of_source,
        "board": lambda row: identity.of_board(row, defences[row["defence_id"]]["fingerprint"]),
    }
    for kind, of in computed.items():
        for row in things[kind].values():
            try:
                holds = of(row) == row["fingerprint"]
            except (ValueError, TypeError, AttributeError):  # its JSON is no JSON any more
                holds = False
            if not holds:
                name = row["name"] if "name" in row else f"{row['norm']}, {row['n_examples']} examples"
                findings.problems.append(
                    f"{kind} {row['id']} ({name}): its settings were changed (they do not fit its fingerprint)"
                )


@dataclasses.dataclass
class BoardCheck:
    """The verification of one board."""

    database: Database
    folder: Path
    things: Mapping[str, Mapping[int, Row]]
    board: Row
    defence: Row
    where: str
    findings: Findings
    referees: Referees
    """Of the boards before: a defence's boards share theirs."""
    tracker: Tracker

    def records(self) -> None:
        """What can be checked without a model: totals, digests, settings, the threat model and the doubts."""
        with self.database.connect() as connection:
            cells = self._cells(connection)
            for cell in cells:
                rows, shards = self._rows(connection, cell), self._shards(connection, cell)
                self._totals(cell, rows)
                self._coverage(cell, rows, shards)
                self._settings(cell)
                self._threat_model(cell)
        expected = doubts.found(self.database, self.board["id"])
        for cell in cells:
            words = expected.get((cell["attack_id"], cell["source_id"]))
            if words is not None and words != json.loads(cell["doubts_json"]):
                self._problem(cell, "its doubts were changed (they are not what its flags and rows give)")

    def judge(self, key: PrivateKey, more_artifacts: Path | None) -> None:
        shared = (self.board["defence_id"], self.board["dataset"], self.board["n_examples"])
        if shared not in self.referees:
            self.referees[shared] = self._referee(key, more_artifacts)
        referee, examples = self.referees[shared]
        if examples.fingerprint != self.board["examples_sha256"]:
            raise CannotJudge(
                f"the first {self.board['n_examples']} images of {self.board['dataset']} are not those it was judged on"
            )
        clean = examples.unit()
        with self.database.connect() as connection:
            for cell in self._cells(connection):
                rows = self._rows(connection, cell)
                for shard in self._shards(connection, cell):
                    self._judge_shard(referee, clean, examples.labels, cell, shard, rows)
                    self.tracker.advance(shard["stop"] - shard["start"], self.where)

    def _problem(self, cell: Row, text: str) -> None:
        attack, source = self.things["attack"][cell["attack_id"]], self.things["source"][cell["source_id"]]
        self.findings.problems.append(f"{self.where}, {attack['name']}@{source['name']}: {text}")

    def _cells(self, connection: Connection) -> list[Row]:
        query = sa.select(schema.cell).where(schema.cell.c.board_id == self.board["id"])
        return list(connection.execute(query.order_by(*schema.cell.primary_key)).mappings())

    def _rows(self, connection: Connection, cell: Row) -> dict[int, Row]:
        query = sa.select(schema.result).where(writer.of_cell(schema.result, _key(cell)))
        return {row["example_idx"]: row for row in connection.execute(query).mappings()}

    def _shards(self, connection: Connection, cell: Row) -> list[Row]:
        query = sa.select(schema.shard).where(writer.of_cell(schema.shard, _key(cell)), schema.shard.c.status == "done")
        return list(connection.execute(query.order_by(schema.shard.c.start)).mappings())

    def _totals(self, cell: Row, rows: Mapping[int, Row]) -> None:
        said = (cell["n_correct"], cell["n_done"], cell["gradients"], cell["queries"])
        seen = (
            sum(row["correct"] for row in rows.values()), len(rows),
            sum(row["gradients"] for row in rows.values()), sum(row["queries"] for row in rows.values()),
        )  # fmt: skip
        if said != seen:
            self._problem(
                cell,
                f"the cell says {said[0]} of {said[1]} right, {said[2]} gradients and {said[3]} queries; "
                f"its rows say {seen[0]} of {seen[1]}, {seen[2]} and {seen[3]}",
            )
        if (cell["status"] == "done") != (len(rows) == self.board["n_examples"]):
            self._problem(cell, f"status {cell['status']} with {len(rows)} of {self.board['n_examples']} rows")

    def _coverage(self, cell: Row, rows: Mapping[int, Row], shards: list[Row]) -> None:
        covered: set[int] = set()
        for shard in shards:
            own = range(shard["start"], shard["stop"])
            covered |= set(own)
            here = [rows[index] for index in own if index in rows]
            for index in own:
                if index not in rows:
                    self._problem(cell, f"example {index}: its row is missing")
            if shard["rows_sha256"] and len(here) == len(own) and (reason := _changed(here, shard)):
                self._problem(cell, f"examples {own.start} to {own.stop - 1}: {reason}")
        for index in sorted(rows.keys() - covered):
            self._problem(cell, f"example {index}: its row belongs to no finished shard")

    def _settings(self, cell: Row) -> None:
        """The run's stored settings against what its cells were made with."""
        run = self.things["run"][cell["run_id"]]
        try:
            spec = json.loads(run["spec_json"])
            seed = json.loads(self.things["attack"][cell["attack_id"]]["params_json"]).get("seed", spec["seed"])
            said = {
                "preset": (spec["preset"], run["preset"]),
                "seed": (spec["seed"], seed),
                "examples": (spec["examples"], self.board["n_examples"]),
                "epsilon": (spec["epsilon"][self.board["norm"]], self.board["epsilon"]),
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            self._problem(cell, f"the stored settings of run {run['id']} cannot be read")
            return
        for name, (in_run, in_cell) in said.items():
            if in_run != in_cell:
                self._problem(cell, f"run {run['id']} says {name} {in_run}, the cell was made with {in_cell}")

    def _threat_model(self, cell: Row) -> None:
        source = self.things["source"][cell["source_id"]]
        if source["name"] == schema.CLEAN:
            return
        made_of = json.loads(source["params_json"])
        if made_of.get("strategy") != cell["strategy"]:
            self._problem(
                cell, f"it is counted to strategy {cell['strategy']}, its source is of {made_of.get('strategy')}"
            )
        try:
            defence = registry.defence(self.defence["name"], json.loads(self.defence["params_json"]))
            strategy = registry.strategy(made_of["strategy"], made_of.get("settings", {}))
        except (BenchError, KeyError):
            return  # a plug-in that is not installed here
        inside = not strategy.needs_key and strategy.refusal(defence, source["name"]) is None
        if inside != cell["inside_threat_model"]:
            words = {True: "inside", False: "outside"}
            self._problem(cell, f"stored as {words[not inside]} the threat model; it is {words[inside]}")

    def _judge_shard(
        self, referee: Referee, clean: np.ndarray, labels: np.ndarray, cell: Row, shard: Row, rows: Mapping[int, Row]
    ) -> None:
        span = slice(shard["start"], shard["stop"])
        attack, source = self.things["attack"][cell["attack_id"]], self.things["source"][cell["source_id"]]
        try:
            if attack["name"] == schema.CLEAN:
                adversarial = clean[span]
            elif shard["images_file"] is None:
                self.findings.without_images += shard["stop"] - shard["start"]
                return
            else:
                own = identity.cell(self.board, attack, source)
                if not shard["images_file"].startswith(f"{own[:16]}/"):
                    raise BenchError(f"{shard['images_file']} is of another cell")
                adversarial = images.load(self.folder, shard["images_file"], shard["images_sha256"])
            verdict = referee.judge(clean[span], labels[span], adversarial, self.board["norm"], self.board["epsilon"])
        except BenchError as error:
            self._problem(cell, f"examples {shard['start']} to {shard['stop'] - 1}: {error}")
            return
        for offset, index in enumerate(range(shard["start"], shard["stop"])):
            self.findings.rows += 1
            if index not in rows:
                continue  # said already
            row = rows[index]
            for name, judged in (
                ("pred", int(verdict.pred[offset])),
                ("correct", int(verdict.correct[offset])),
                ("label", int(labels[index])),
            ):
                if row[name] != judged:
                    self._problem(cell, f"example {index}: {name} is stored as {row[name]}, judged {judged}")
            for name, value in (("margin", verdict.margin[offset]), ("distance", verdict.distance[offset])):
                if abs(row[name] - value) > MARGIN_TOLERANCE:
                    self._problem(cell, f"example {index}: {name} is stored as {row[name]:.6g}, judged {value:.6g}")

    def _referee(self, key: PrivateKey, more_artifacts: Path | None) -> tuple[Referee, datasets.Split]:
        defence, board = self.defence, self.board
        artifact = artifacts.with_weights(defence["weights_sha256"], more_artifacts)
        if artifact is None:
            raise CannotJudge(f"the weights it was judged with ({defence['weights_sha256'][:12]}…) are not here")
        if fingerprint(artifact.spec) != artifact.fingerprint:
            raise BenchError(f"artifact {artifact.path}: its description was changed (it does not fit its fingerprint)")
        if defence["keyed"] and defence["key_id"] != key.id:
            raise CannotJudge(
                f"it was judged with key '{defence['key_id']}', and this is key '{key.id}': give --key-file"
            )
        try:
            dataset = datasets.load(board["dataset"])
            examples = dataset.examples(board["n_examples"])
            plugin = registry.defence(defence["name"], json.loads(defence["params_json"]))
            network = recipes.network_of(artifact.spec["recipe"])
        except BenchError as error:
            raise CannotJudge(str(error)) from error
        if plugin.version != defence["version"]:
            raise CannotJudge(f"{defence['name']} is of version {plugin.version} here, not {defence['version']}")
        shape = plugin.output_shape(dataset.shape)
        loaded = classifier.load(network, shape, len(dataset.classes), artifact.weights, artifact.weights_sha256)
        return Referee(plugin, loaded, key if defence["keyed"] else None, dataset.shape), examples


def _changed(rows: Sequence[Row], shard: Row) -> str | None:
    """Whether the rows of a shard are those its digest was made of."""
    try:
        same = row_format.digest(rows, shard["rows_version"]) == shard["rows_sha256"]
    except BenchError as error:
        return str(error)
    return None if same else "a row was changed since it was written (sha256 differs)"


def _key(cell: Row) -> writer.CellKey:
    return (cell["board_id"], cell["attack_id"], cell["source_id"])
