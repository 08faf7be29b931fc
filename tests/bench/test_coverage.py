"""Coverage: what a board must have, what it has of it, where it stands for that, and which boards are one."""

from __future__ import annotations

import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from rich.console import Console
from sqlalchemy.engine import Engine as Database

from bench import plan, spec
from bench.data import datasets
from bench.data.datasets import Split
from bench.evaluation.report import print_boards
from bench.store import coverage, example_sets, frames, queries, ranking, schema, writer
from bench.store.coverage import Required
from bench.store.database import open_database
from bench.store.queries import Board
from bench.support.fingerprint import fingerprint
from tests import honest as honest_run
from tests.processes import bench
from tests.stores import a_cell, fill, shard

PAIRS = ("aa@bypass", "pgd@bypass", "pgd@nominal", "square@bypass")


def stored_board(
    database: Database,
    n: int = 4,
    required: Required | str | None = None,
    name: str = "d",
    examples: str | None = None,
    **changes: Any,
) -> int:
    """A board with its unperturbed images, and its required cells: as a run stores them, or a text as it stands."""
    thing = {"name": name, "version": "1", "params_json": "{}", "fingerprint": name}
    defence = writer.ensure(
        database, schema.defence, {**thing, "keyed": True, "key_id": "k", "weights_sha256": "w", "description": "D."}
    )
    said = required.to_json() if isinstance(required, Required) else required
    values = {
        "defence_id": defence, "dataset": "x", "examples_sha256": examples or f"e{n}", "norm": "linf", "epsilon": 0.03,
        "n_examples": n, "required_json": said, **changes,
    }  # fmt: skip
    own = fingerprint([name, values["dataset"], values["examples_sha256"], values["norm"], values["epsilon"]])
    board = writer.ensure(database, schema.board, {**values, "fingerprint": own})
    fill(database, board, {(schema.CLEAN, schema.CLEAN): np.ones(n, bool)})
    return board


def withstanding(database: Database, board: int, n: int, right: int, *pairs: str) -> None:
    for pair in pairs:
        fill(database, board, {(pair.split("@")[0], pair.split("@")[1]): np.arange(n) < right})


def only(database: Database, board: int) -> Board:
    (found,) = queries.boards(database, only=board)
    return found


def test_the_required_pairs_are_what_all_means() -> None:
    laptop = spec.resolve("laptop")
    for request in ("linac", "none", "block-shuffle"):
        name, defence = laptop.defence(request)
        asked = plan.requested(laptop, request, ["all"])
        wanted = {pair.name for pair in asked if pair.inside_threat_model}  # reference rows are no part of it
        assert plan.required(laptop, name, defence) == tuple(sorted(wanted))
    assert len(plan.required(laptop, *laptop.defence("linac"))) == 32
    smoke = spec.resolve("smoke")
    assert len(plan.required(smoke, *smoke.defence("linac"))) < 32, "a preset asks for what it asks for"


@pytest.mark.needs_process
def test_a_run_of_two_cells_stores_all_that_it_should_have(honest: Path) -> None:
    database = open_database(str(honest / "results" / "bench.db"), create=False)
    (board,) = queries.boards(database)
    smoke = spec.resolve("smoke")
    assert board.required == Required("smoke", plan.required(smoke, *smoke.defence("block-shuffle")))
    assert board.coverage is not None
    assert board.coverage.covered == ("pgd@nominal",)
    assert not board.coverage.complete
    kept = example_sets.found(database, [board])
    examples = datasets.load("cifar10").examples(6)
    assert kept == {examples.fingerprint: examples.digests(example_sets.DIGEST_BYTES)}
    shown = bench("results", cwd=honest).stdout
    total = len(board.coverage.required.pairs)
    assert "at most" in shown
    assert f"coverage: 1 of {total} cells that preset smoke asks for; missing: " in shown.replace("\n", " ")
    database.dispose()


@pytest.mark.needs_process
def test_the_latest_run_says_what_is_required(honest: Path, tmp_path: Path) -> None:
    preset = (Path(spec.PRESETS) / "smoke.toml").read_text()
    (tmp_path / "other.toml").write_text(preset)
    (tmp_path / "results").mkdir()
    source = sqlite3.connect(honest / "results" / "bench.db")
    target = sqlite3.connect(tmp_path / "results" / "bench.db")
    source.backup(target)
    target.execute("UPDATE board SET required_json = NULL")
    target.commit()
    for connection in (source, target):
        connection.close()
    done = bench(
        *(word if word != "smoke" else "other.toml" for word in honest_run.RUN), cwd=tmp_path,
        BENCH_HOME=str(honest / "home"),
    )  # fmt: skip
    assert "1 there already" in done.stdout, done.stderr
    database = open_database(str(tmp_path / "results" / "bench.db"), create=False)
    (board,) = queries.boards(database)
    assert board.required is not None
    assert board.required.preset == "other", "a board of before has it from its next run on"
    database.dispose()


@pytest.mark.needs_process
def test_a_preset_whose_all_cannot_be_planned_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Though the attack that is asked for could be: what an evaluation needs is stored with its board."""
    smoke = (Path(spec.PRESETS) / "smoke.toml").read_text()
    (tmp_path / "odd.toml").write_text(smoke.replace("[engines.mt]", "[engines.mt]\nstepz = 3"))
    assert "stepz" in (tmp_path / "odd.toml").read_text()
    done = bench(*(word if word != "smoke" else "odd.toml" for word in honest_run.RUN), cwd=tmp_path)
    assert (done.returncode, "stepz" in done.stderr) == (2, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["odd.toml"]


def test_only_required_cells_that_count_cover(database: Database) -> None:
    board = stored_board(database, required=Required("laptop", PAIRS))
    withstanding(database, board, 4, 3, "pgd@nominal", "mt@nominal")  # nobody asks for the second
    half = a_cell(database, board, "pgd", "bypass")
    writer.record_shard(database, half, shard(0, [True]), 4)
    fill(database, board, {("aa", "bypass"): np.ones(4, bool)}, inside=False)
    found = only(database, board).coverage
    assert found is not None
    assert (found.covered, str(found), found.share) == (("pgd@nominal",), "1 of 4 cells", 0.25)
    assert found.missing == ("aa@bypass", "pgd@bypass", "square@bypass")
    writer.record_shard(database, half, shard(1, [True] * 3), 4)
    assert coverage.said(only(database, board).coverage) == "2 of 4 cells"


def test_settings_of_an_engine_do_not_matter(database: Database) -> None:
    board = stored_board(database, required=Required("laptop", ("pgd@s",)))
    row = {"name": "pgd", "version": "1", "params_json": '{"steps": 2}', "fingerprint": "pgd of two steps"}
    key = a_cell(database, board, "mt", "s")
    key = (board, writer.ensure(database, schema.attack, row), key[2])
    run = {"command": "", "preset": "p", "spec_json": "{}", "versions_json": "{}", "device": ""}
    writer.ensure_cell(
        database, key, {"run_id": writer.start_run(database, run), "strategy": "s", "inside_threat_model": True}
    )
    writer.record_shard(database, key, shard(0, [True] * 4), 4)
    found = only(database, board).coverage
    assert found is not None
    assert found.complete


@pytest.mark.parametrize(
    "text",
    [
        None, "", "no JSON", "null", "[]", "7", '{"preset": "p", "pairs": []}',
        '{"preset": "p", "pairs": "pgd@s", "imported": false}', '{"preset": 1, "pairs": ["pgd@s"], "imported": false}',
        '{"preset": "p", "pairs": [], "imported": false}', '{"preset": "p", "pairs": ["pgd"], "imported": false}',
        '{"preset": "p", "pairs": ["pgd@s", "pgd@s"], "imported": false}',
        '{"preset": "p", "pairs": ["pgd@s"], "imported": 0}', '{"preset": "p", "pairs": [{"a": 1}], "imported": false}',
    ],
)  # fmt: skip
def test_without_a_word_on_it_coverage_is_not_known_and_never_complete(database: Database, text: str | None) -> None:
    board = stored_board(database, required=text)
    withstanding(database, board, 4, 3, "pgd@s")
    found = only(database, board)
    assert found.coverage is None
    assert found.best_known == 3
    assert ranking.why(found) == "Stands last: it is not known which cells it should have."
    (row,) = json.loads(frames.boards_frame([found]).to_json(orient="records"))
    assert (row["coverage"], row["missing"], row["best_known_is"]) == ("coverage not known", None, "at most")
    assert (row["covered"], row["required"]) == (None, None)


def test_more_coverage_comes_first_then_best_known(database: Database) -> None:
    """Two cells on many examples, with the highest Best Known, come after four of four."""
    wanted, theirs = Required("laptop", PAIRS), Required("laptop", PAIRS, imported=True)
    for name, n, right, said, pairs in (
        ("high, one cell", 10, 10, wanted, PAIRS[:1]),
        ("low, two cells", 10, 1, wanted, PAIRS[:2]),
        ("complete, low", 4, 1, wanted, PAIRS),
        ("complete, high", 4, 3, wanted, PAIRS),
        ("said to be complete", 4, 4, theirs, PAIRS),
        ("unknown", 10, 10, None, PAIRS),
    ):  # fmt: skip
        board = stored_board(database, n, said, name=name)
        withstanding(database, board, n, right, *pairs)
    assert [board.defence for board in queries.boards(database)] == [
        "complete, high", "complete, low", "low, two cells", "high, one cell", "said to be complete", "unknown",
    ]  # fmt: skip
    reasons = [ranking.why(board) for board in queries.boards(database)]
    assert reasons[0].startswith("Stands among the first, which have every required cell")
    assert reasons[3].endswith("the 3 missing ones can only lower its number.")
    assert "the word of an import" in reasons[4]


def test_tables_say_how_many_of_how_many_and_at_most(database: Database) -> None:
    board = stored_board(database, required=Required("laptop", (*PAIRS, *(f"mt@surrogate:{k}" for k in range(9)))))
    withstanding(database, board, 4, 3, "pgd@nominal")
    old = stored_board(database, name="old")
    withstanding(database, old, 4, 4, "pgd@nominal")
    written = io.StringIO()
    boards = queries.boards(database)
    print_boards(boards, Console(width=300, file=written))
    lines = written.getvalue().splitlines()
    (first, second) = (line for line in lines if "Best Known" in line and "at most" in line)
    assert [part.strip() for part in first.strip("│ ").split("│")][:2] == ["Best Known", "at most 75.00"]
    assert first.rstrip("│ ").endswith("1 of 13 cells")
    assert second.rstrip("│ ").endswith("coverage not known")
    (said,) = (line for line in lines if line.startswith("coverage: "))
    assert "1 of 13 cells that preset laptop asks for; missing: aa@bypass, " in said
    assert "and 6 more. Stands after boards with a larger share of their cells: the 12 missing ones" in said
    rows = json.loads(frames.boards_frame(boards).to_json(orient="records"))
    assert [(row["coverage"], row["covered"], row["required"], row["required_by"]) for row in rows] == [
        ("1 of 13 cells", 1, 13, "laptop"), ("coverage not known", None, None, None),
    ]  # fmt: skip
    assert len(rows[0]["missing"]) == 12
    lines = frames.boards_frame(boards).to_csv(index=False).splitlines()
    assert "at most,1 of 13 cells,1,13,laptop,False" in lines[1]


def numbered(start: int, count: int) -> Split:
    """So many images that are all different, from this one on."""
    images = np.arange(start, start + count, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    return Split(images, np.zeros(count, np.int32))


def boards_on(database: Database, *splits: Split, **changes: Any) -> list[int]:
    """A board for each, of one defended model, which knows its examples."""
    made = []
    for split in splits:
        made.append(stored_board(database, len(split), examples=split.fingerprint, **changes))
        withstanding(database, made[-1], len(split), 1, "pgd@bypass")
        example_sets.keep(database, split.fingerprint, split.digests(example_sets.DIGEST_BYTES))
    return made


def standings(database: Database) -> list[tuple[int, list[int]]]:
    boards = queries.boards(database)
    found = ranking.shown(boards, example_sets.found(database, boards))
    return [(one.board.id, [other.id for other in one.others]) for one in found]


def test_boards_on_the_first_examples_of_each_other_are_one(database: Database) -> None:
    few, more, other = boards_on(
        database, numbered(0, 3), numbered(0, 6), numbered(1, 6), required=Required("laptop", PAIRS)
    )
    assert standings(database) == [(more, [few]), (other, [])], "as much coverage: the most examples"
    withstanding(database, few, 3, 1, *PAIRS[:3])
    assert standings(database) == [(few, [more]), (other, [])], "the most coverage, however few the examples"


@pytest.mark.parametrize("change", [{"name": "e"}, {"dataset": "y"}, {"norm": "l2"}, {"epsilon": 0.04}])
def test_they_are_one_only_where_nothing_else_differs(database: Database, change: dict[str, Any]) -> None:
    boards_on(database, numbered(0, 6))
    boards_on(database, numbered(0, 3), **change)
    assert [others for _, others in standings(database)] == [[], []]


def test_what_is_not_proved_is_not_one(database: Database) -> None:
    boards_on(database, numbered(0, 6), numbered(0, 3))
    assert len(standings(database)) == 1
    with database.begin() as connection:
        connection.execute(
            sa.update(schema.example_set)
            .where(schema.example_set.c.examples_sha256 == numbered(0, 3).fingerprint)
            .values(digests=b"")
        )
    assert len(standings(database)) == 2, "an empty text is the beginning of every text, but of no examples"
    with database.begin() as connection:
        connection.execute(sa.delete(schema.example_set))
    assert len(standings(database)) == 2, "as of boards of before"


def test_the_sample_inside_the_package_is_the_beginning_of_all_test_images() -> None:
    """Whatever the labels' type, and wherever the images are from."""
    sample = datasets.load("cifar10").test
    longer = Split(
        np.concatenate([sample.images, sample.images[:5]]), np.concatenate([sample.labels, sample.labels[:5]])
    )
    wide = Split(longer.images, longer.labels.astype(np.int64))
    assert wide.digests(8).startswith(sample.first(50).digests(8))
    assert len(sample.first(50).digests(8)) == 400
    relabelled = Split(sample.images, (sample.labels + 1) % 10)
    assert not relabelled.digests(8).startswith(sample.first(1).digests(8))
