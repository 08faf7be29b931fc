"""The eight-bit question: what of an attack is left in a PNG, as a column of its own that changes no other number."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.evaluation.verify import verify
from bench.exchange import exporting, importing
from bench.exchange.archive import RefusedArchive
from bench.store import frames, queries, schema, writer
from bench.store.best_known import Rounded
from bench.store.database import open_database, writing
from bench.vault.referee import Referee, to_eight_bits
from tests import archives, vaults
from tests.processes import bench, run
from tests.stores import a_board, a_cell, shard
from tools.compare_rows import snapshot

SCRIPT = """
from pathlib import Path
import keras, numpy as np, bench
from bench.api import Attacked, Engine
from defences.colour import MEAN, STD

class Pushed(Engine):
    \"\"\"Makes an image lighter by so many levels.\"\"\"
    levels: float

    def run(self, source, batch, report):
        count = len(batch.images)
        images = np.clip(batch.images + np.float32(self.levels / 255), 0, 1).astype(np.float32)
        zeros, none = np.zeros(count, np.int64), np.full(count, -1, np.int32)
        return Attacked(images, zeros.astype(bool), zeros.astype(np.float32), none, none, zeros, zeros)

    def work(self, examples):
        return examples

class Faint(Pushed):
    levels = 0.375

class Strong(Pushed):
    levels = 2.0

class Idle(Pushed):
    levels = 0.0

images = np.empty((3, 4, 4, 3), np.uint8)
images[:] = np.array([110, 120, 200], np.uint8)[:, None, None, None]
dense = keras.layers.Dense(2)
model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.GlobalAveragePooling2D(), dense])
lightness = 85 * np.stack([np.zeros(3), STD], axis=1)  # of a standardised image, as this defence gives it on
dense.set_weights([lightness, np.array([0, 85 * np.sum(MEAN) - 110.25])])

def evaluated(db, **options):
    return bench.evaluate("none", [(one, "self") for one in (Faint, Strong, Idle)], classifier=model, images=images,
                          labels=[0, 1, 1], preset="smoke", norms="linf", epsilon="2/255", db=db, quiet=True, **options)

if Path("plain.db").exists():
    print(evaluated("plain.db", judge_rounded=True).best_known_rounded)
else:
    evaluated("plain.db")
    print(evaluated("rounded.db", judge_rounded=True).best_known_rounded["linf"].share)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same evaluation twice: as always, and with the images judged rounded."""
    folder = tmp_path_factory.mktemp("rounded")
    (folder / "script.py").write_text(SCRIPT)
    assert float(script(folder)) == pytest.approx(2 / 3), "the strong attack breaks the dark image in a PNG too"
    return folder


def script(folder: Path) -> str:
    done = run([sys.executable, "script.py"], cwd=folder, environment={"BENCH_HOME": str(folder / "home")})
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells(path: Path) -> dict[str, queries.Cell]:
    database = open_database(str(path), create=False)
    (board,) = queries.boards(database)
    database.dispose()
    return {cell.attack: cell for cell in board.cells}


class Threshold(Referee):
    """Calls an image dark up to a mean of 110.25 levels, and counts what it is shown."""

    def __init__(self) -> None:
        self.shown = 0
        self.logits = self._logits

    def _logits(self, images: np.ndarray) -> np.ndarray:
        self.shown += len(images)
        lightness = images.astype(np.float64).mean(axis=(1, 2, 3)) * 255 - 110.25
        return np.stack([np.zeros(len(images)), lightness], axis=1)


def of_levels(*levels: float) -> np.ndarray:
    images = np.empty((len(levels), 4, 4, 3), np.float32)
    images[:] = (np.array(levels) / 255).astype(np.float32)[:, None, None, None]
    return images


def test_breaks_below_half_a_level_are_told_from_those_that_a_png_keeps() -> None:
    clean, labels = of_levels(110, 110, 110), np.zeros(3, int)
    verdict = Threshold().judge(clean, labels, of_levels(110.375, 112, 110), "linf", 2 / 255, rounded=True)
    assert verdict.correct.tolist() == [False, False, True]
    assert verdict.rounded is not None
    assert verdict.rounded.tolist() == [True, False, True]


def test_rounding_may_leave_the_ball_by_half_a_level_and_never_the_range() -> None:
    clean, labels = of_levels(110, 255, 0), np.array([0, 1, 0])
    epsilon = 0.75 / 255
    verdict = Threshold().judge(clean, labels, of_levels(110.75, 254.25, 0.75), "linf", epsilon, rounded=True)
    assert verdict.rounded is not None
    assert verdict.rounded.tolist() == [False, True, True]
    assert verdict.distance.max() <= epsilon + 1e-6, "the distance is that of the image itself"
    values = to_eight_bits(np.linspace(0, 1, 100_001, dtype=np.float32))
    assert set(values.tolist()) == set((np.arange(256, dtype=np.float32) / np.float32(255)).tolist())
    exact = np.arange(256).astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(to_eight_bits(exact), exact)


def test_what_is_of_eight_bits_already_is_not_classified_twice() -> None:
    referee, clean = Threshold(), of_levels(110, 120, 130)
    referee.judge(clean, np.zeros(3, int), clean, "linf", 1.0, rounded=True)
    assert referee.shown == 3
    referee.judge(clean, np.zeros(3, int), of_levels(110, 120.3, 131), "linf", 1.0, rounded=True)
    assert referee.shown == 3 + 3 + 1
    referee.judge(clean, np.zeros(3, int), of_levels(110.2, 120.3, 130.1), "linf", 1.0)
    assert referee.shown == 7 + 3, "it costs nobody else anything"


@pytest.mark.needs_process
def test_it_is_a_column_of_its_own_and_changes_no_other_number(world: Path) -> None:
    plain, asked = snapshot(str(world / "plain.db")), snapshot(str(world / "rounded.db"))
    answers = {key: row.pop("rounded") for key, row in asked["result"].items()}
    assert {row.pop("rounded") for row in plain["result"].values()} == {None}
    assert plain == asked
    assert len(answers) == 12
    assert None not in answers.values()
    assert all(cell.rounded is None for cell in cells(world / "plain.db").values())
    for name, right, survive in (("faint", 3, 0), ("strong", 2, 1), ("idle", 3, 0)):
        rounded = cells(world / "rounded.db")[name].rounded
        assert rounded is not None
        assert (rounded.n_done, rounded.n_correct, rounded.survive) == (3, right, survive), name
    assert cells(world / "rounded.db")["faint"].n_correct == 2, "as the attack made it, it is broken"


@pytest.mark.needs_process
def test_cells_that_are_there_stay_as_they_are(world: Path, tmp_path: Path) -> None:
    shutil.copytree(world, tmp_path / "again")
    before = archives.everything(tmp_path / "again" / "plain.db")["result"]
    assert script(tmp_path / "again") == "{}\n"
    assert archives.everything(tmp_path / "again" / "plain.db")["result"] == before


def problems(folder: Path, name: str) -> list[str]:
    database = open_database(str(folder / f"{name}.db"), create=False)
    try:
        found = verify(database, folder / f"{name}.images", vaults.published())
        return [*found.problems, *found.unjudged.values()]
    finally:
        database.dispose()


@pytest.fixture
def copy(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, to be changed."""
    shutil.copytree(world, tmp_path / "copy")
    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "copy" / "home"))
    return tmp_path / "copy"


def changed(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.needs_process
def test_it_is_verified_where_it_is_there(copy: Path) -> None:
    assert problems(copy, "plain") == problems(copy, "rounded") == []
    faint = "attack_id = (SELECT id FROM attack WHERE name = 'faint')"
    changed(copy / "rounded.db", f"UPDATE result SET rounded = 0 WHERE example_idx = 0 AND {faint}")
    found = problems(copy, "rounded")
    assert any("faint@self: example 0: rounded is stored as 0, judged 1" in one for one in found), found
    assert any("a row was changed since it was written (sha256 differs)" in one for one in found)
    changed(copy / "plain.db", f"UPDATE shard SET rows_version = 1 WHERE {faint}")
    changed(copy / "plain.db", f"UPDATE result SET rounded = 1 WHERE example_idx = 0 AND {faint}")
    (strayed,) = [one for one in problems(copy, "plain") if "examples 0 to 2" in one]
    assert "a row was changed since it was written (rows of version 1 have no rounded)" in strayed


@pytest.mark.needs_process
def test_it_goes_along_with_the_results_and_is_judged_again(copy: Path, tmp_path: Path) -> None:
    database = open_database(str(copy / "rounded.db"), create=False)
    exporting.export(database, copy / "rounded.images", tmp_path / "all.zip", with_weights=True)
    database.dispose()

    def taken(file: Path, folder: Path) -> list[tuple[Any, ...]]:
        done = importing.import_(file, str(folder / "bench.db"), folder / "bench.images", vaults.published())
        assert (done.rows, len(done.unjudged), len(done.unjudged_cells)) == (12, 0, 0)
        return sorted(
            (key[-1], key[3], row["rounded"]) for key, row in snapshot(str(folder / "bench.db"))["result"].items()
        )

    ours = sorted(
        (key[-1], key[3], row["rounded"]) for key, row in snapshot(str(copy / "rounded.db"))["result"].items()
    )
    assert taken(tmp_path / "all.zip", tmp_path / "theirs") == ours
    forgery = archives.Forgery(tmp_path / "all.zip")
    columns = forgery.rows[forgery.attacked[0]]
    columns["rounded"] = 1 - columns["rounded"]
    with pytest.raises(RefusedArchive, match="rounded is stored as"):
        taken(forgery.mend().write(tmp_path / "forged.zip"), tmp_path / "forged")
    columns["rounded"] = columns["rounded"] + 2
    with pytest.raises(RefusedArchive, match="rounded has a value that is not in -1 to 1"):
        taken(forgery.mend().write(tmp_path / "odd.zip"), tmp_path / "odd")


@pytest.mark.needs_process
def test_it_is_in_tables_and_files_and_on_the_page(world: Path, tmp_path: Path) -> None:
    found = json.loads(bench("results", "--db", world / "rounded.db", "--format", "json", cwd=tmp_path).stdout)
    assert {row["attack"]: (row["accuracy"], row["rounded_accuracy"], row["survive_rounding"]) for row in found} == {
        "clean": (100.0, 100.0, 0), "faint": (66.67, 100.0, 0), "strong": (66.67, 66.67, 1), "idle": (100.0, 100.0, 0),
    }  # fmt: skip
    lines = bench("results", "--db", world / "plain.db", "--format", "csv", cwd=tmp_path).stdout.splitlines()
    columns = ("rounded_accuracy", "rounded_low", "rounded_high", "survive_rounding")
    assert [row[name] for row in csv.DictReader(lines) for name in columns] == [""] * 4 * (len(lines) - 1)
    boards = bench("results", "--db", world / "rounded.db", "--format", "json", "--what", "boards", cwd=tmp_path).stdout
    assert json.loads(boards)[0]["best_known_rounded"] == 66.67
    assert "rounded %" in bench("results", "--db", world / "rounded.db", cwd=tmp_path).stdout
    assert "rounded %" not in bench("results", "--db", world / "plain.db", cwd=tmp_path).stdout
    for name in ("rounded", "plain"):
        assert bench("leaderboard", "--db", world / f"{name}.db", "--out", name, cwd=tmp_path).returncode == 0
    (page,) = [path.read_text() for path in (tmp_path / "rounded" / "defences").glob("*.html")]
    (plain,) = [path.read_text() for path in (tmp_path / "plain" / "defences").glob("*.html")]
    assert "Rounded to eight bits" in page
    assert "Rounded to eight bits" not in plain


def judged_rounded(start: int, correct: list[bool], rounded: list[bool | None]) -> writer.ShardResult:
    made = shard(start, correct)
    rows = [{**row, "rounded": None if one is None else int(one)} for row, one in zip(made.rows, rounded, strict=True)]
    return writer.ShardResult(rows, "test", 1.0, {}, (), None, None)


def test_only_what_was_judged_as_a_whole_has_a_number(database: Database) -> None:
    board = a_board(database, 5)
    clean = a_cell(database, board, "clean", "clean")
    writer.record_shard(database, clean, shard(0, [True, True, True, False, False]), 5)
    pgd, mt = a_cell(database, board, "pgd", "s"), a_cell(database, board, "mt", "s")
    writer.record_shard(database, pgd, judged_rounded(0, [False, True], [True, True]), 5)
    writer.record_shard(database, pgd, judged_rounded(2, [False, False, False], [None, None, None]), 5)
    right, rounded = [True, True, False, False, True], [True, False, True, False, True]
    writer.record_shard(database, mt, judged_rounded(0, right, list(rounded)), 5)
    (found,) = queries.boards(database)
    by_name = {cell.attack: cell for cell in found.cells}
    assert by_name["pgd"].rounded is None, "a part of it would be of other examples"
    assert by_name["mt"].rounded == Rounded(5, 3, 1)
    assert (found.best_known, found.best_known_rounded) == (1, None)
    with writing(database) as connection:
        connection.execute(sa.update(schema.result).where(schema.result.c.rounded.is_(None)).values(rounded=1))
        connection.execute(sa.update(schema.result).where(schema.result.c.attack_id == clean[1]).values(rounded=None))
    (found,) = queries.boards(database)
    assert found.best_known_rounded == 2, "examples 0 and 2: mt breaks 1 and 3 rounded, and 4 was wrong at first"
    assert frames.boards_frame([found]).loc[0, "best_known_rounded"] == 40.0
