"""What the version before wrote: its database is upgraded, verified and gone on with, and its export is taken over."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest
import sqlalchemy as sa

from bench.api import BenchError
from bench.evaluation.verify import verify
from bench.exchange import importing
from bench.store import key_searches, queries, schema
from bench.store.database import HEAD, open_database, writing
from bench.store.queries import Cell
from tests import vaults
from tests.conftest import bench
from tests.stores import rows

BEFORE = Path(__file__).parents[1] / "fixtures" / "before"
RUN = (
    "run",
    "--defence",
    "block-shuffle",
    "--preset",
    "smoke",
    "--examples",
    "6",
    "--shard-size",
    "3",
    "--db",
    "bench.db",
)
PAIRS = ("--attack", "pgd@nominal", "--attack", "aa@bypass")


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A folder with the old database and its images: two norms, two attacks and a key search, 36 rows in all."""
    shutil.copy(BEFORE / "bench.db", tmp_path)
    with zipfile.ZipFile(BEFORE / "results.zip") as packed:
        for name in packed.namelist():
            if name.startswith("images/"):
                target = tmp_path / "bench.images" / name.removeprefix("images/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(packed.read(name))
    return tmp_path


def before_rounding(path: str) -> list[tuple[object, ...]]:
    """The rows of the old database, as they are once it is upgraded: none was judged rounded."""
    return [(*row, None) for row in rows(path)]


@pytest.mark.needs_process
def test_the_old_database_asks_to_be_upgraded_and_then_verifies(before: Path) -> None:
    path = str(before / "bench.db")
    with pytest.raises(BenchError, match=f"older schema 0003: run 'bench db upgrade --db {path}'"):
        open_database(path, create=True)
    old = before_rounding(path)
    done = bench("db", "upgrade", "--db", "bench.db", cwd=before)
    assert done.stdout == f"bench.db has schema {HEAD}\n", done.stderr
    assert rows(path) == old
    database = open_database(path, create=False)
    found = verify(database, before / "bench.images", vaults.published())
    assert (found.rows, found.without_images, found.problems, found.unjudged) == (36, 0, [], {})
    assert {(c.attack_about.meaning, c.source_about.meaning) for c in cells(path)} == {("", "")}, "it goes by its names"
    assert {(c.scope, c.on_survivors, c.bounds.exact) for c in cells(path)} == {("all", False, True)}
    (search,) = key_searches.found(database)
    assert (search.defence, len(search.guesses), len(search.candidates)) == ("block-shuffle", 5, 1)
    assert not search.found, "nobody has tried fresh images then"
    with writing(database) as connection:
        connection.execute(sa.update(schema.key_search).values(race_floor=0.1))
    found = verify(database, before / "bench.images", vaults.published())
    assert found.problems == [
        "key search 1 (block-shuffle, 100 test images): its settings were changed (they do not fit its fingerprint)"
    ]


def cells(path: str) -> list[Cell]:
    """All cells of a database."""
    return [cell for board in queries.boards(open_database(path, create=False)) for cell in board.cells]


@pytest.mark.needs_process
def test_its_pages_go_by_the_names_that_are_stored(before: Path) -> None:
    bench("db", "upgrade", "--db", "bench.db", cwd=before)
    done = bench("leaderboard", "--db", "bench.db", "--out", "site", cwd=before)
    assert done.returncode == 0, done.stderr
    (page,) = [path.read_text() for path in (before / "site" / "defences").glob("*.html")]
    assert re.findall(r'<th scope="col"[^>]*>([^<]+)', page[page.index("<thead>") : page.index("</thead>")])[:3] == [
        "Attack", "bypass", "nominal",
    ]  # fmt: skip
    assert "<em>pba</em>; <em>transfer</em>." in page
    assert "<code>apgd-ce</code>" in page, "the parts of an attack are stored with its cell"
    assert "What these attacks and sources are" not in page


@pytest.mark.needs_process
def test_a_run_goes_on_with_it(before: Path) -> None:
    """The board is known again by its fingerprint. Engines of a new version make cells of their own, and the old stay."""
    old = before_rounding(str(before / "bench.db"))
    bench("db", "upgrade", "--db", "bench.db", cwd=before)
    done = bench(*RUN, *PAIRS, "--attack", "square@nominal", cwd=before)
    assert "6 done (0 resumed), 0 there already, 0 failed" in done.stdout, done.stderr
    both = rows(str(before / "bench.db"))
    assert all(both.count(row) >= old.count(row) for row in old)
    assert len(both) == len(old) + 36
    assert bench("verify", "--db", "bench.db", cwd=before).stdout.endswith("72 rows judged again, 0 problems\n")
    found = cells(str(before / "bench.db"))
    assert len(queries.boards(open_database(str(before / "bench.db"), create=False))) == 2, "one in each norm"
    assert sum(bool(cell.attack_about.meaning and cell.source_about.meaning) for cell in found) == len(found) - 4


def test_the_old_export_is_taken_over(before: Path, tmp_path: Path) -> None:
    db = tmp_path / "new" / "bench.db"
    done = importing.import_(BEFORE / "results.zip", str(db), tmp_path / "new" / "bench.images", vaults.published())
    assert (done.cells, done.rows, done.there_already, done.unjudged) == (6, 36, 0, {})
    assert rows(str(db)) == before_rounding(str(before / "bench.db"))
    database = open_database(str(db), create=False)
    found = verify(database, tmp_path / "new" / "bench.images", vaults.published())
    assert (found.rows, found.problems, found.unjudged) == (36, [], {})
