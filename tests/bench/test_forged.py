"""Archives that lie: nothing forged counts, nothing of one's own is written over, nothing is left of what failed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from bench.api import BenchError, flags
from bench.cli import main
from bench.evaluation import doubts
from bench.evaluation.verify import verify
from bench.exchange import importing, placing
from bench.models import artifacts
from bench.store import health, imports, queries, ranking, schema, writer
from bench.store.coverage import Required
from bench.store.database import open_database
from bench.store.health import SourceHealth
from bench.support.fingerprint import of_file
from bench.vault.here import VaultHere
from leaderboard.build import build
from tests import honest as honest_run
from tests import vaults
from tests.archives import Forgery, everything, files, of_network, write
from tests.conftest import bench
from tests.processes import run as run_program

pytestmark = pytest.mark.needs_process


@pytest.fixture
def own(honest: Path, tmp_path: Path) -> Path:
    """The results folder of a user who has run the same: a database and its images."""
    shutil.copytree(honest / "results", tmp_path / "own")
    return tmp_path / "own"


def taken(path: Path, folder: Path, vault: VaultHere | None = None) -> importing.Imported:
    return importing.import_(path, str(folder / "bench.db"), folder / "bench.images", vault or vaults.published())


def board(folder: Path) -> queries.Board:
    database = open_database(str(folder / "bench.db"), create=False)
    (found,) = queries.boards(database)
    database.dispose()
    return found


def command(*words: str) -> Any:
    return CliRunner().invoke(main, words)


def test_cells_without_images_are_not_judged_and_change_no_number(packed: Path, own: Path, tmp_path: Path) -> None:
    """Rows that say that everything is broken, and nothing to judge them by."""
    before = board(own)
    forged = Forgery(packed).another_attack(steps=21).all_broken().without_images().mend()
    done = taken(forged.write(tmp_path / "forged.zip"), own)
    assert (done.cells, done.rows, done.there_already) == (1, 6, 6)
    (said,) = done.unjudged_cells.values()
    assert "pgd@nominal: 6 of 6 rows could not be judged" in said
    after = board(own)
    assert (after.best_known, after.best_adversary, after.clean, after.left_out) == (
        before.best_known, before.best_adversary, before.clean, before.left_out,
    )  # fmt: skip
    assert before.best_known == 2, "a third of the examples, which the forged rows say are broken"
    assert after.imported == {"unjudged": 1}
    checked = command("verify", "--db", str(own / "bench.db"))
    assert checked.exit_code == 1
    assert "pgd@nominal: 6 of 6 rows could not be judged, as their images were not kept" in checked.output
    assert "12 rows judged again, 1 problems; 6 rows without images were not judged" in checked.output
    shown = command("results", "--db", str(own / "bench.db"))
    assert "1 of 2 cells were not judged here and do not count" in shown.output


def requiring(packed: Path, path: Path, said: Any) -> Path:
    """The archive with other words on which cells its board must have: a text as it stands, or a value as JSON."""
    forged = Forgery(packed)
    forged.tables["board"][0]["required_json"] = said if isinstance(said, str | None) else json.dumps(said)
    return forged.write(path)


def wanted(*pairs: Any, **changes: Any) -> dict[str, Any]:
    return {"preset": "laptop", "pairs": list(pairs), "imported": False, **changes}


def test_which_cells_a_board_must_have_is_an_imports_word_and_marked(packed: Path, own: Path, tmp_path: Path) -> None:
    """One pair of one is complete, and still stands behind what was planned here."""
    before = board(own)
    more = Forgery(packed).another_attack(steps=21).mend().write(tmp_path / "more.zip")
    lie = requiring(more, tmp_path / "lie.zip", wanted("pgd@nominal"))
    assert taken(lie, own).cells == 1
    assert board(own).required == before.required, "what a run here has said of a board stays"
    assert before.coverage is not None
    assert not before.coverage.complete
    new = tmp_path / "new"
    taken(lie, new)
    found = board(new)
    assert found.required == Required("laptop", ("pgd@nominal",), imported=True)
    assert ranking.by_coverage(before) < ranking.by_coverage(found), "1 of many before 1 of 1"
    shown = command("results", "--db", str(new / "bench.db")).output
    assert "the word of an import" in " ".join(shown.split())
    silent = tmp_path / "silent"
    taken(requiring(packed, tmp_path / "silent.zip", None), silent)
    assert board(silent).coverage is None


def test_a_run_of_ones_own_says_better(packed: Path, honest: Path, tmp_path: Path) -> None:
    taken(requiring(packed, tmp_path / "lie.zip", wanted("pgd@nominal")), tmp_path / "results")
    done = bench(*honest_run.RUN, cwd=tmp_path, BENCH_HOME=str(honest / "home"))
    assert "1 there already" in done.stdout, done.stderr
    assert board(tmp_path / "results").required == board(honest / "results").required


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (7.5, "required_json has no such form"),
        (["pgd@nominal"], "required_json has no such form"),
        ("no JSON", "required_json of row 0 of its table board"),
        ("", "required_json of row 0 of its table board"),
        ({}, "is no set of required cells"),
        ({**wanted("pgd@nominal"), "more": 1}, "is no set of required cells"),
        (wanted(), "has no list of 1 to 10000 pairs"),
        (wanted("pgd@nominal", pairs="pgd@nominal"), "has no list of 1 to 10000 pairs"),
        (wanted(*(f"pgd@s{i}" for i in range(10_001))), "has no list of 1 to 10000 pairs"),
        (wanted("pgd"), "has a pair that is no engine@source"),
        (wanted(7), "has a pair that is no engine@source"),
        (wanted(["pgd@nominal"]), "has a pair that is no engine@source"),
        (wanted("pgd@" + "x" * 400), "has a pair that is no engine@source"),
        (wanted("pgd@\x1b[2J"), "has a pair that is no engine@source"),
        (wanted("pgd@nominal", "pgd@nominal"), "has a pair twice"),
        (wanted("pgd@nominal", preset="x" * 51), "has no preset's name"),
        (wanted("pgd@nominal", preset=None), "has no preset's name"),
        (wanted("pgd@nominal", imported="no"), "does not say whether it was imported"),
        (wanted("x" * 2**20), "required_json is too long"),
    ],
)
def test_words_on_coverage_that_are_none_are_refused(packed: Path, tmp_path: Path, said: Any, reason: str) -> None:
    with pytest.raises(BenchError, match=reason):
        taken(requiring(packed, tmp_path / "odd.zip", said), tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_script_in_a_required_cell_is_text(packed: Path, tmp_path: Path) -> None:
    script = "<script>document.title='owned'</script>@<img src=x onerror=alert(1)>"
    taken(requiring(packed, tmp_path / "odd.zip", wanted(script, preset="<script>1</script>[bold]")), tmp_path)
    database = open_database(str(tmp_path / "bench.db"), create=False)
    build(database, tmp_path / "site")
    pages = [path.read_text() for path in (tmp_path / "site").rglob("*.html")]
    assert sum("&lt;script&gt;document.title" in page for page in pages) == 1, (
        "the defence's page names what is missing"
    )
    assert not any(re.search(r"<script(?! src=)|<img", page) for page in pages)
    assert "<script>1</script>[bold]" in command("results", "--db", str(tmp_path / "bench.db")).output
    database.dispose()


def test_a_cell_with_some_of_its_images_is_not_judged_either(packed: Path, tmp_path: Path) -> None:
    half = Forgery(packed).without_images(start=3).mend()
    done = taken(half.write(tmp_path / "half.zip"), tmp_path)
    assert ["3 of 6 rows could not be judged" in said for said in done.unjudged_cells.values()] == [True]
    assert board(tmp_path).imported == {"unjudged": 1}
    assert board(tmp_path).clean is not None, "judged from the dataset"
    assert board(tmp_path).best_known is None
    assert taken(packed, tmp_path).cells == 1, "what was judged takes its place"
    assert board(tmp_path).imported == {"judged": 1}
    assert files(tmp_path / "bench.images").keys() == {
        name for (name,) in sqlite3.connect(tmp_path / "bench.db").execute("SELECT images_file FROM shard") if name
    }, "no file is left of what gave way"


def test_a_strategy_that_is_not_installed_is_not_taken_at_its_word(packed: Path, own: Path, tmp_path: Path) -> None:
    """It says that it is inside the threat model, and nobody here can tell."""
    forged = Forgery(packed).another_strategy("telepathy").mend()
    done = taken(forged.write(tmp_path / "forged.zip"), own)
    assert ["its strategy 'telepathy' is not installed here" in said for said in done.unjudged_cells.values()] == [True]
    assert board(own).imported == {"unjudged": 1}


def test_an_honest_run_takes_the_place_of_what_was_not_judged(packed: Path, honest: Path, tmp_path: Path) -> None:
    forged = Forgery(packed).all_broken().without_images().mend()
    taken(forged.write(tmp_path / "forged.zip"), tmp_path / "results")
    assert board(tmp_path / "results").imported == {"unjudged": 1}
    done = bench(*honest_run.RUN, cwd=tmp_path, BENCH_HOME=str(honest / "home"))
    assert "1 done (0 resumed), 0 there already" in done.stdout, done.stderr
    assert board(tmp_path / "results").imported == {}
    assert board(tmp_path / "results").best_known == board(honest / "results").best_known
    assert everything(tmp_path / "results" / "bench.db")["imported_cell"] == {(1, 1, 1, 1)}, "but for the clean cell"


def test_what_a_user_discarded_is_named_and_is_no_success(own: Path) -> None:
    """The same by hand in one's own database: rows changed, images gone."""
    connection = sqlite3.connect(own / "bench.db")
    connection.execute("UPDATE shard SET images_file = NULL, images_sha256 = NULL WHERE start = 3")
    connection.commit()
    connection.close()
    database = open_database(str(own / "bench.db"), create=False)
    found = verify(database, own / "bench.images", vaults.published())
    assert (found.rows, found.without_images, found.problems) == (9, 3, [])
    assert ["pgd@nominal: 3 of 6 rows" in said for said in found.unjudged_cells.values()] == [True]
    assert len(found.judged) == 1, "the clean cell"


def test_images_of_ones_own_are_never_written_over(packed: Path, own: Path, tmp_path: Path) -> None:
    """The same pixels packed otherwise, under the names that the user's own files have."""
    offered = Forgery(packed)
    for shard in offered.shards(offered.attacked[1]):
        array = np.load(own / "bench.images" / shard["images_file"])["images"]
        np.savez(tmp_path / "other.npz", images=array)
        offered.images[shard["images_file"]] = content = (tmp_path / "other.npz").read_bytes()
        shard["images_sha256"] = of_file(tmp_path / "other.npz")
        assert content != (own / "bench.images" / shard["images_file"]).read_bytes()
    before, rows = files(own / "bench.images"), everything(own / "bench.db")
    done = taken(offered.write(tmp_path / "offered.zip"), own)
    assert (done.rows, done.there_already) == (0, 12)
    assert files(own / "bench.images") == before
    assert everything(own / "bench.db") == rows
    new = tmp_path / "new"
    taken(tmp_path / "offered.zip", new)
    assert not set(files(new / "bench.images")) & set(before), "they are named by what is in them"
    assert command("verify", "--db", str(new / "bench.db")).exit_code == 0


def test_a_file_that_is_there_with_other_content_stops_the_import(packed: Path, tmp_path: Path) -> None:
    name = sorted(Forgery(packed).images)[1]
    (tmp_path / "bench.images" / name).parent.mkdir(parents=True)
    (tmp_path / "bench.images" / name).write_bytes(b"mine")
    with pytest.raises(BenchError, match="is there already and holds other images: nothing was taken over"):
        taken(packed, tmp_path)
    assert files(tmp_path / "bench.images") == {name: b"mine"}
    assert everything(tmp_path / "bench.db")["result"] == set()


def failing(name: str, at: int) -> Callable[[pytest.MonkeyPatch], None]:
    """A function of ours that fails the `at`-th time it is called."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        module, _, function = name.rpartition(".")
        place: Any = {"writer": writer, "placing": placing, "doubts": doubts, "os": os}[module]
        true, calls = getattr(place, function), []

        def fail(*args: Any, **more: Any) -> Any:
            calls.append(args)
            if len(calls) == at:
                raise BenchError("something went wrong in the middle")
            return true(*args, **more)

        monkeypatch.setattr(place, function, fail)

    return patch


MIDDLES = {
    "writing the second shard": failing("writer.put_shard", 2),
    "writing the last shard": failing("writer.put_shard", 4),
    "copying the second file of images": failing("placing.atomic_write", 2),
    "linking the second file of images": failing("os.link", 2),
    "after the last file of images": failing("placing.sync_folder", 1),
    "writing the doubts": failing("doubts.put", 1),
}


@pytest.mark.parametrize("middle", MIDDLES)
def test_what_fails_in_the_middle_leaves_nothing(
    packed: Path, own: Path, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, middle: str
) -> None:
    offered = Forgery(packed).another_attack(steps=21).mend().write(tmp_path / "offered.zip")
    monkeypatch.setattr(artifacts, "ZOO", tmp_path / "no-zoo")
    if middle.startswith(("writing the last", "writing the second")):
        shutil.rmtree(own)  # so that all four shards are new
        own.mkdir()
        open_database(str(own / "bench.db"), create=True).dispose()
    before, rows = files(own / "bench.images"), everything(own / "bench.db")
    with monkeypatch.context() as patch:
        MIDDLES[middle](patch)
        with pytest.raises(BenchError, match="something went wrong"):
            taken(offered, own)
    assert files(own / "bench.images") == before
    assert everything(own / "bench.db") == rows
    assert files(own_home) == {}, "nor weights"
    assert taken(offered, own).cells > 0, "and the same command does it"


KILLED = """
import os, sys
from pathlib import Path
from bench import keys
from bench.vault.here import VaultHere
from leaderboard.build import build
from bench.exchange import importing, placing
true = placing.Placed.link
def link(self, names):
    true(self, names)
    os.kill(os.getpid(), 9)
placing.Placed.link = link
folder = Path(sys.argv[2])
importing.import_(Path(sys.argv[1]), str(folder / "bench.db"), folder / "bench.images", VaultHere(keys.published()))
"""


def test_what_a_killed_import_leaves_the_next_takes_away(packed: Path, own: Path, tmp_path: Path) -> None:
    """Killed at the worst moment: every file is linked in, and no row is committed."""
    before, rows = files(own / "bench.images"), everything(own / "bench.db")
    offered = Forgery(packed).another_attack(steps=21).mend().write(tmp_path / "offered.zip")
    done = run_program([sys.executable, "-c", KILLED, offered, own])
    assert done.returncode == -9, done.stderr
    assert everything(own / "bench.db") == rows
    assert files(own / "bench.images") != before
    assert taken(packed, own).cells == 0, "another import, of what is there already"
    assert files(own / "bench.images") == before


def test_an_import_is_taken_out_again(
    packed: Path, own: Path, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "ZOO", tmp_path / "no-zoo")
    before, rows = files(own / "bench.images"), everything(own / "bench.db")
    first = Forgery(packed).another_attack(steps=21).mend().write(tmp_path / "first.zip")
    second = (
        Forgery(packed).another_attack(steps=22).all_broken().without_images().mend().write(tmp_path / "second.zip")
    )
    assert (taken(first, own).rows, taken(second, own).rows) == (6, 6)
    assert files(own_home), "the weights came along"
    db = str(own / "bench.db")
    listed = command("db", "imports", "--db", db).output.splitlines()
    assert [line.split(", 2")[0] for line in listed] == [
        "1: first.zip: 1 cells, 6 rows", "2: second.zip: 1 cells, 6 rows",
    ]  # fmt: skip
    gone = command("db", "forget", "--imported", str(first), "--db", db)
    assert gone.output == "first.zip: 1 cells, 6 rows and 2 files of images are gone\n"
    assert files(own / "bench.images") == before
    second.unlink()
    gone = command("db", "forget", "--imported", "second.zip", "--db", db)
    assert gone.output == "second.zip: 1 cells, 6 rows and 0 files of images are gone\n", gone.output
    assert everything(own / "bench.db") == rows
    again = command("db", "forget", "--imported", "second.zip", "--db", db)
    assert again.exit_code == 2
    assert "nothing was imported from 'second.zip'" in again.output


def test_forgetting_takes_the_weights_and_boards_that_nothing_else_has(
    packed: Path, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "ZOO", tmp_path / "no-zoo")
    one, two = tmp_path / "one", tmp_path / "two"
    taken(packed, one)
    taken(packed, two)
    kept = files(own_home)
    database = open_database(str(one / "bench.db"), create=False)
    (board,) = queries.boards(database)
    health.record(database, board.id, board.cells[0].source_id, SourceHealth({}, {flags.NOISE_WINS: 6}, 1.0))
    database.dispose()
    command("db", "forget", "--imported", "all.zip", "--db", str(one / "bench.db"))
    left = everything(one / "bench.db")
    assert {name for name, rows in left.items() if rows} == {"alembic_version"}
    assert files(one / "bench.images") == {}
    assert {name for name in kept if "used_by" not in name} <= files(own_home).keys(), "the other database has them"
    command("db", "forget", "--imported", "1", "--db", str(two / "bench.db"))
    assert files(own_home) == {}


def test_a_row_that_two_imports_share_goes_with_the_last(packed: Path, tmp_path: Path) -> None:
    first = Forgery(packed).mend().write(tmp_path / "first.zip")
    second = Forgery(packed).another_attack(steps=21).mend().write(tmp_path / "second.zip")
    taken(first, tmp_path)
    taken(second, tmp_path)
    for name in ("first.zip", "second.zip"):
        done = command("db", "forget", "--imported", name, "--db", str(tmp_path / "bench.db"))
        assert done.exit_code == 0, done.output
    assert {name for name, rows in everything(tmp_path / "bench.db").items() if rows} == {"alembic_version"}


def test_imports_before_this_schema_are_told_apart_and_judged_by_their_images(packed: Path, tmp_path: Path) -> None:
    """A database of schema 0004, in which a cell without images was called judged."""
    from bench.store.database import migrate

    path = tmp_path / "old.db"
    database = sa_engine(path)
    migrate(database, "0004")
    database.dispose()
    forged = Forgery(packed).all_broken().without_images().mend()
    taken(forged.write(tmp_path / "forged.zip"), tmp_path / "new")
    connection = sqlite3.connect(path)
    connection.execute("ATTACH ? AS new", (str(tmp_path / "new" / "bench.db"),))
    for table in ("run", "defence", "attack", "source", "board", "cell", "shard", "result"):
        columns = ", ".join(name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    connection.execute("UPDATE main.cell SET imported = 'judged'")
    connection.commit()
    connection.close()
    database = open_database(str(path), create=False, upgrade=True)
    with database.connect() as link:
        assert sorted(mark for (mark,) in link.execute(schema.cell.select().with_only_columns(schema.cell.c.imported))) == [
            "judged", "unjudged",
        ]  # fmt: skip
    (known,) = imports.found(database)
    assert (known.name, known.cells, known.rows) == ("before schema 0005", 2, 12)
    database.dispose()
    assert command("db", "forget", "--imported", "1", "--db", str(path)).exit_code == 0


def sa_engine(path: Path) -> Any:
    import sqlalchemy as sa

    from bench.store.database import _set_up_sqlite, url_of

    engine = sa.create_engine(url_of(str(path)))
    _set_up_sqlite(engine)
    return engine


def set_in(table: str, **values: object) -> Callable[[Forgery], None]:
    def change(forgery: Forgery) -> None:
        forgery.tables[table][-1].update(values)

    return change


def column(name: str, value: float) -> Callable[[Forgery], None]:
    def change(forgery: Forgery) -> None:
        forgery.rows[forgery.attacked[0]][name][2] = value

    return change


def in_json(table: str, name: str, **values: object) -> Callable[[Forgery], None]:
    def change(forgery: Forgery) -> None:
        row = forgery.tables[table][-1]
        row[name] = json.dumps({**json.loads(row[name] or "{}"), **values})

    return change


def two_labels(forgery: Forgery) -> None:
    columns = forgery.rows[forgery.attacked[0]]
    columns["label"][1] = (columns["label"][1] + 1) % 10
    columns["correct"] = (columns["label"] == columns["pred"]).astype(np.int64)


def no_shards(forgery: Forgery) -> None:
    place, cell = forgery.attacked
    forgery.without_images()
    forgery.tables["shard"] = [shard for shard in forgery.tables["shard"] if shard not in forgery.shards(cell)]
    forgery.manifest["tables"] = forgery.tables
    forgery.rows[place] = {name: values[:0] for name, values in forgery.rows[place].items()}


def clean_from_elsewhere(forgery: Forgery) -> None:
    _, cell = forgery.attacked
    clean = next(row["id"] for row in forgery.tables["source"] if row["name"] == "clean")
    for row in (*forgery.shards(cell), cell):
        row["source_id"] = clean


TOO_MUCH: dict[str, tuple[Callable[[Forgery], None], str]] = {
    "an infinite epsilon": (set_in("board", epsilon=10**400), "epsilon"),
    "an epsilon of nothing": (set_in("board", epsilon=0.0), "an epsilon is above 0"),
    "a large epsilon": (set_in("board", epsilon=1e7), "an epsilon is above 0"),
    "a label of 2e9": (column("label", 2 * 10**9), "label has a value that is not in 0 to 9"),
    "a label that is no class": (column("label", 10), "label has a value that is not in 0 to 9"),
    "an answer that is no class": (column("pred", -1), "pred has a value that is not in 0 to 9"),
    "a margin that is no number": (column("margin", np.nan), "margin has a value that is not in"),
    "a distance beyond the ball": (column("distance", 0.5), "distance has a value that is not in"),
    "a part that there is none of": (column("part", 3), "part has a value that is not in -1 to -1"),
    "a verdict that is none": (column("correct", 2), "correct has a value that is not in 0 to 1"),
    "two labels": (two_labels, "has two labels"),
    "ten million examples and twelve rows": (
        set_in("board", n_examples=10**7), "declares 10000000 examples in 2 cells, and has 12 rows",
    ),
    "a cell without rows": (no_shards, "a cell has no finished shard"),
    "more than a small integer": (set_in("shard", attempt=2**40), "attempt is out of range"),
    "negative seconds": (set_in("cell", seconds=-1.0), "seconds is -1"),
    "flags that are text": (in_json("cell", "flags_json", x="many"), "is no table of counts"),
    "a status of its own": (set_in("cell", status="best"), "status is none of"),
    "an origin of its own": (set_in("cell", imported="ours"), "imported is neither"),
    "a path for a dataset": (set_in("board", dataset="/etc/images.npz"), "dataset is a path"),
    "an escape sequence in a name": (set_in("source", name="nominal\x1b[2J"), "name has signs that are no letters"),
    "a NUL in a setting": (in_json("attack", "params_json", note="a\0b"), "has signs that are no letters"),
    "a turned line": (set_in("defence", name="\u202eshuffle"), "name has signs that are no letters"),
    "a digest that is none": (set_in("defence", weights_sha256="../../x"), "weights_sha256 is no sha256"),
    "a key without a name": (set_in("defence", key_id=None), "has a key without a name"),
    "an attack from the clean source": (clean_from_elsewhere, "in part only"),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_what_would_break_later_is_refused_at_the_door(
    packed: Path, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, said = TOO_MUCH[kind]
    forgery = Forgery(packed)
    change(forgery)
    with contextlib.suppress(OverflowError, ValueError):  # an epsilon that has no fingerprint
        forgery.mend()
    monkeypatch.setattr(importing, "verify", lambda *_: pytest.fail("it is refused before anything is judged"))
    with pytest.raises(BenchError) as refusal:
        taken(forgery.write(tmp_path / "offered.zip"), tmp_path / "theirs")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "theirs").exists()
    assert files(own_home) == {}


def test_an_epsilon_of_1e400_is_no_number(packed: Path, tmp_path: Path) -> None:
    content = Forgery(packed).content()
    text = content["manifest.json"].decode()
    epsilon = json.dumps(json.loads(text)["tables"]["board"][0]["epsilon"])
    write(tmp_path / "offered.zip", content)
    from zipfile import ZipFile

    with ZipFile(tmp_path / "offered.zip") as old, ZipFile(tmp_path / "huge.zip", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(epsilon.encode(), b"1e400") if name == "manifest.json" else data)
    with pytest.raises(BenchError, match="1e400 is no number that can be stored"):
        taken(tmp_path / "huge.zip", tmp_path / "theirs")


def test_a_network_of_gigabytes_is_refused_by_its_description(packed: Path, tmp_path: Path) -> None:
    """Of sizes that are within the limits of each setting, behind the weights of a small one."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    write(tmp_path / "offered.zip", of_network(depth=196, width=24)(Forgery(packed).content()))
    with pytest.raises(BenchError, match=r"of 6,\d\d\d MiB, has other weights than the file"):
        taken(tmp_path / "offered.zip", tmp_path / "theirs")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20, "in KiB: nothing of it was built"


def test_what_is_for_people_is_made_printable(packed: Path, tmp_path: Path) -> None:
    forgery = Forgery(packed)
    forgery.tables["run"][-1].update(device="cpu\x1b[2J\x00", command="bench run \x1b]0;x\x07")
    forgery.tables["defence"][-1]["description"] = "good\u202edoog\n"
    about = json.loads(forgery.tables["attack"][-1]["about_json"])
    forgery.tables["attack"][-1]["about_json"] = json.dumps({**about, "label": "PGD\x1b[31m"})
    assert taken(forgery.mend().write(tmp_path / "offered.zip"), tmp_path).cells == 2
    stored = json.dumps([list(map(list, rows)) for rows in map(list, everything(tmp_path / "bench.db").values())])
    for sign in ("\\u001b", "\\u0000", "\\u0007", "\\u202e"):
        assert sign not in stored.replace(f"\\{sign}", "")
    (found,) = board(tmp_path).cells
    assert found.attack_about.label == "PGD\\x1b[31m"
