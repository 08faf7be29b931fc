"""An attack that tries less than it was published with is called reduced wherever its number stands."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path

import pytest

from bench import registry
from bench.reproduction import grids
from bench.reproduction.grids import ComparedNumber, Grid
from bench.reproduction.reproduced import Reproduced
from bench.reproduction.writing import write_files
from bench.store import descriptions
from leaderboard.reproductions import Record
from leaderboard.tables import TableEntry
from tests.processes import bench

BUDGETS = {
    ("pgd", "steps"): "40 of 100 steps",
    ("mt", "targets"): "40 of 9 targets",
    ("square", "queries"): "40 of 10,000 queries",
    ("aa", "queries"): "40 of 5,000 queries",
    ("apgd-t", "steps"): "40 of 100 steps",
    ("fab-t", "steps"): "40 of 100 steps",
}


@pytest.mark.parametrize(("engine", "setting"), BUDGETS)
def test_less_than_was_published_is_said(engine: str, setting: str) -> None:
    assert descriptions.reduced(registry.engine(engine, {})) == ""
    value = 4 if setting == "targets" else 40
    said = descriptions.reduced(registry.engine(engine, {setting: value}))
    assert said == BUDGETS[engine, setting].replace("40", str(value), 1)
    assert descriptions.reduced(registry.engine(engine, {setting: 10**6})) == "", "more is not less"


def test_a_part_of_autoattack_is_not_autoattack() -> None:
    alone = registry.engine("aa", {"parts": ("apgd-ce",)})
    assert descriptions.reduced(alone) == "1 of 4 parts"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an attack on a reduced budget, and one that has all of its own."""
    folder = tmp_path_factory.mktemp("budgets")
    done = bench("run", "--defence", "none", "--preset", "smoke", "--examples", "2", "--norm", "linf", "--attack",
                 "pgd[steps=7,restarts=2]@self", "--attack", "apgd-ce[steps=100]@self", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "shown.txt").write_text(done.stdout)
    return folder


SAID = "7 of 100 steps, 2 of 10 restarts"


@pytest.mark.needs_process
def test_the_terminal_says_it(world: Path) -> None:
    shown = (world / "shown.txt").read_text()
    assert "pgd@self (reduced)" in shown
    assert re.search(r"Best Adversary pgd[^\n]*\n?│? *\(reduced\)", shown)
    assert f"reduced: pgd: {SAID} (on self)" in shown
    assert not re.search(r"apgd-ce[^\n]*reduced", shown)


@pytest.mark.needs_process
def test_files_have_it(world: Path) -> None:
    cells = json.loads(bench("results", "--format", "json", cwd=world).stdout)
    assert {cell["attack"]: cell["reduced"] for cell in cells} == {"clean": "", "pgd": SAID, "apgd-ce": ""}
    rows = list(csv.DictReader(io.StringIO(bench("results", "--format", "csv", cwd=world).stdout)))
    assert {row["attack"]: row["reduced"] for row in rows} == {"clean": "", "pgd": SAID, "apgd-ce": ""}
    sources = json.loads(bench("results", "--what", "sources", "--format", "json", cwd=world).stdout)
    assert {row["attack"]: row["reduced"] for row in sources} == {"pgd": SAID, "apgd-ce": ""}
    (matrix,) = (world / "results" / "leaderboard" / "data").rglob("board-*-matrix.csv")
    rows = list(csv.DictReader(matrix.open()))
    assert {row["attack"]: row["reduced"] for row in rows} == {
        "pgd": "self, Best Adversary", "apgd-ce": "", "Best Known": "self, Best Adversary",
    }  # fmt: skip


@pytest.mark.needs_process
def test_every_number_of_it_on_the_pages_says_it(world: Path) -> None:
    site = world / "results" / "leaderboard"
    (page,) = [path.read_text() for path in (site / "defences").glob("*.html")]
    told = {
        cell: html.unescape(body) for cell, body in re.findall(r'<td[^>]*data-cell="([^"]+)"[^>]*>(.*?)</td>', page)
    }
    assert {cell.split("/", 1)[1]: "reduced" in body for cell, body in told.items()} == {
        "pgd/self": True, "apgd-ce/self": False,
    }  # fmt: skip
    assert page.count(SAID) >= 2, "beside its number, and in words below the table"
    assert "1 of 2 cells on reduced budgets" in page
    names = set(re.findall(r"<code>([a-z-]*pgd[^<]*@self[^<]*)</code>", page))
    assert names == {"pgd@self (reduced)", "apgd-ce@self"}, "who breaks what"
    (index,) = (site / "examples").rglob("index.js")
    assert set(re.findall(r'"name": ?"([^"]*pgd[^"]*)"', index.read_text())) == {"pgd@self (reduced)", "apgd-ce@self"}


def test_the_papers_tables_made_again_say_it(tmp_path: Path) -> None:
    numbers = [ComparedNumber(TableEntry(20, 50, reduced=SAID), 12.5), ComparedNumber(TableEntry(30, 50), 40.0)]
    table = Grid("linf", 8 / 255, ["nominal", "bypass"], {"pgd": numbers})
    item = Reproduced("table1", grids.frame([table]), True, grids=[table])
    record = Record("laptop", "2026-01-01T00:00:00", True, 50, "bench reproduce table1", [], [])
    page = write_files(tmp_path, item, record)
    assert re.findall(r'class="reduced" title="([^"]+)"', page.read_text()) == [SAID]
    rows = list(csv.DictReader(page.with_suffix(".csv").open()))
    assert {row["column"]: row["reduced"] for row in rows} == {"nominal": SAID, "bypass": ""}
    assert r"40.00$^{\dagger}$ (12.50) & 60.00 (40.00)" in page.with_suffix(".tex").read_text()
