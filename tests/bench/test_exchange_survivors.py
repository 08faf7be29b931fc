"""Results of runs on what still stood, as one file: complete elsewhere too, lies are refused, and taken out again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bench.api import BenchError
from bench.evaluation.verify import verify
from bench.exchange import exporting, forgetting, importing
from bench.store import completeness, outcomes, queries, schema, writer
from bench.store.database import open_database
from bench.store.schema import SURVIVORS
from tests import vaults
from tests.archives import Forgery
from tests.processes import bench
from tests.stores import a_cell, rows, shard_of

pytestmark = pytest.mark.needs_process

RUN = ("run", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--attack", "pgd@bypass", "--preset", "smoke",
       "--examples", "10", "--norm", "l2", "--epsilon", "0.2", "--shard-size", "3", "--scope", "survivors")  # fmt: skip


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run on what still stood, and of its export."""
    folder = tmp_path_factory.mktemp("survived")
    done = bench(*RUN, cwd=folder, BENCH_HOME=str(folder / "home"))
    assert done.returncode == 0, done.stderr
    database = open_database(str(folder / "results" / "bench.db"), create=False)
    exporting.export(database, folder / "results" / "bench.images", folder / "all.zip", with_weights=False)
    database.dispose()
    return folder


def taken(path: Path, folder: Path) -> importing.Imported:
    return importing.import_(path, str(folder / "bench.db"), folder / "bench.images", vaults.published())


def board(folder: Path) -> queries.Board:
    database = open_database(str(folder / "bench.db"), create=False)
    (found,) = queries.boards(database)
    database.dispose()
    return found


def breaker_and_last(forged: Forgery) -> tuple[dict[str, Any], int]:
    """The first attack's cell, which breaks some examples, and the place of the one that was shown what it had left."""
    some = [(place, cell) for place, cell in enumerate(forged.tables["cell"]) if cell["strategy"] != "clean"]
    (_, first), (last, _) = sorted(some, key=lambda one: -one[1]["n_done"])
    return first, last


def test_it_is_complete_elsewhere_and_best_known_is_the_same(survived: Path, tmp_path: Path) -> None:
    before = board(survived / "results")
    assert before.scope == SURVIVORS
    assert 0 < (before.best_known or 0) < 10, "some withstand, and some were broken and not shown to the other"
    done = taken(survived / "all.zip", tmp_path)
    assert (done.cells, done.rows, done.unjudged, done.unjudged_cells) == (
        3,
        sum(c.n_done for c in (*before.cells, before.clean) if c),
        {},
        {},
    )
    assert rows(str(tmp_path / "bench.db")) == rows(str(survived / "results" / "bench.db"))
    after = board(tmp_path)
    for name in ("best_known", "adversaries", "scope", "left_out", "partial"):
        assert getattr(after, name) == getattr(before, name), name
    assert [(c.status, c.scope, c.n_done, c.bounds) for c in after.cells] == [
        (c.status, c.scope, c.n_done, c.bounds) for c in before.cells
    ]
    assert {cell.imported for cell in after.cells} == {schema.JUDGED}
    database = open_database(str(tmp_path / "bench.db"), create=False)
    assert verify(database, tmp_path / "bench.images", vaults.published()).problems == []
    order = outcomes.order_of(after, outcomes.runs(database, after.id))
    assert sorted(order) == ["pgd@bypass", "pgd@nominal"]
    database.dispose()
    assert taken(survived / "all.zip", tmp_path).rows == 0, "it is all there"


def without_a_row(forged: Forgery) -> None:
    """The last attack's cell, done as before, of which an example is missing that nothing has broken."""
    _, last = breaker_and_last(forged)
    cell, columns = forged.tables["cell"][last], forged.rows[last]
    gone = int(columns["example_idx"][-1])
    forged.rows[last] = {name: values[:-1] for name, values in columns.items()}
    shard = max(forged.shards(cell), key=lambda one: one["stop"])
    assert shard["stop"] == gone + 1
    forged.images.pop(shard["images_file"])
    forged.tables["shard"].remove(shard)
    kept = [example for example in examples_of(shard) if example != gone]
    if kept:
        shard |= {"start": kept[0], "stop": kept[-1] + 1, "images_file": None, "images_sha256": None}
        shard["examples_json"] = json.dumps(kept) if kept[-1] + 1 - kept[0] > len(kept) else None
        forged.tables["shard"].append(shard)


def examples_of(shard: dict[str, Any]) -> list[int]:
    return json.loads(shard["examples_json"] or json.dumps(list(range(shard["start"], shard["stop"]))))


def as_if_on_all(forged: Forgery) -> None:
    """A cell that was shown what was left says that it was shown everything."""
    forged.tables["cell"][breaker_and_last(forged)[1]]["scope"] = "all"


def nothing_was_broken(forged: Forgery) -> None:
    """The cell whose rows the other relies on is said to be outside the threat model."""
    breaker_and_last(forged)[0]["inside_threat_model"] = False


def of_some(listed: Callable[[list[int]], Any]) -> Callable[[Forgery], None]:
    """The list of a shard that has one, changed."""

    def change(forged: Forgery) -> None:
        shard = next(one for one in forged.tables["shard"] if one["examples_json"])
        shard["examples_json"] = json.dumps(listed(json.loads(shard["examples_json"])))

    return change


def twice(forged: Forgery) -> None:
    """Two shards of a cell with an example in common."""
    shards = [one for one in forged.tables["shard"] if one["examples_json"]]
    shard = shards[0]
    own = examples_of(shard)
    forged.tables["shard"].append(
        {**shard, "start": own[0], "stop": own[0] + 1, "examples_json": None, "images_file": None}
    )


LIES: dict[str, tuple[Callable[[Forgery], None], str]] = {
    "a row is missing": (without_a_row, "rows, 1 of the others not broken"),
    "it saw everything": (as_if_on_all, "status done with"),
    "the other broke nothing": (nothing_was_broken, "stored as outside the threat model"),
    "another scope": (lambda f: f.tables["cell"][1].update(scope="some"), "is neither all nor survivors"),
    "an order that is none": (lambda f: f.tables["run"][0].update(order_json='{"a": ["b"]}'), "is no order of cells"),
    "a list that is none": (of_some(lambda own: {"a": own}), "examples_json has no such form"),
    "text": (of_some(lambda own: [*own[:-1], str(own[-1])]), "lists what are no examples"),
    "halves": (of_some(lambda own: [*map(float, own)]), "lists what are no examples"),
    "backwards": (of_some(lambda own: own[::-1]), "lists what are no examples in their order"),
    "one twice": (of_some(lambda own: [own[0], *own]), "lists what are no examples in their order"),
    "nothing": (of_some(lambda own: []), "lists other examples than from its start to its stop"),
    "other ends": (of_some(lambda own: own[:-1]), "lists other examples than from its start to its stop"),
    "all of them": (of_some(lambda own: list(range(own[0], own[-1] + 1))), "lists all of its examples"),
    "an example in two shards": (twice, "the shards of a cell overlap"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LIES)
def test_what_lies_about_what_it_was_shown_is_refused(survived: Path, tmp_path: Path, kind: str) -> None:
    lie, said = LIES[kind]
    forged = Forgery(survived / "all.zip")
    lie(forged)
    if kind in ("a row is missing", "it saw everything", "the other broke nothing"):
        forged.mend()
    with pytest.raises(BenchError, match=said):
        taken(forged.write(tmp_path / "lie.zip"), tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_what_could_not_be_judged_has_broken_nothing(survived: Path, tmp_path: Path) -> None:
    """Without the images of the cell whose rows it relies on, the other one is not complete here."""
    forged = Forgery(survived / "all.zip")
    first, _ = breaker_and_last(forged)
    for shard in forged.shards(first):
        forged.images.pop(shard["images_file"])
        shard["images_file"] = shard["images_sha256"] = None
    taken(forged.write(tmp_path / "lie.zip"), tmp_path)
    found = board(tmp_path)
    assert {(cell.imported, cell.status) for cell in found.cells} == {("unjudged", "done"), ("judged", "running")}
    assert (found.best_known, found.counted) == (None, ())
    assert taken(survived / "all.zip", tmp_path).rows > 0
    assert board(tmp_path).best_known == board(survived / "results").best_known


def test_forgetting_what_broke_examples_leaves_ones_own_cells_incomplete(survived: Path, tmp_path: Path) -> None:
    """One's own attack was shown what theirs had left; without theirs it has to be shown the rest."""
    taken(survived / "all.zip", tmp_path)
    database = open_database(str(tmp_path / "bench.db"), create=False)
    (theirs,) = queries.boards(database)
    broken = completeness.stored_broken(database, theirs.id)
    left = sorted(set(range(10)).difference(broken))
    assert broken
    assert left
    own = a_cell(database, theirs.id, "pgd", "mine", strategy="transfer", scope=SURVIVORS)
    half = a_cell(database, theirs.id, "mt", "mine", strategy="transfer", scope=SURVIVORS)
    assert writer.record_shard(database, own, shard_of(left, [True] * len(left)), 10)
    assert writer.record_shard(database, half, shard_of(left[:1], [True]), 10)
    completeness.update(database, theirs.id)
    statuses = sa.select(schema.cell.c.attack_id, schema.cell.c.status).where(schema.cell.c.imported.is_(None))
    with database.connect() as connection:
        assert dict(map(tuple, connection.execute(statuses).all())) == {
            own[1]: "done",
            half[1]: ("done" if len(left) == 1 else "running"),
        }
    forgetting.forget(database, str(tmp_path / "bench.db"), tmp_path / "bench.images", "all.zip")
    with database.connect() as connection:
        assert {row.status for row in connection.execute(statuses)} == {"running"}
    (found,) = queries.boards(database)
    assert (found.best_known, len(found.cells)) == (None, 2)
    database.dispose()
