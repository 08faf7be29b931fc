"""Coverage on the pages: how many of how many cells, at most, in which order and why, and boards that are one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.store import database as databases
from leaderboard.build import build
from tests.leaderboard import stores
from tests.leaderboard.browser import Browser


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A site, and its boards by what they are like."""
    folder = tmp_path_factory.mktemp("coverage")
    found = stores.unevenly_covered(folder)
    return build(databases.open_database(str(folder / "bench.db"), create=False), folder / "site"), found


def rows(home: Path) -> list[str]:
    """The rows of the boards, in their order."""
    body = re.findall(r'<tbody class="ours">(.*?)</tbody>', home.read_text(), re.DOTALL)[0]
    return re.findall(r"<tr data-name.*?</tr>", body, re.DOTALL)


def text(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def test_coverage_decides_the_order_and_the_page_says_why(boards: tuple[Path, dict[str, int]]) -> None:
    home, ids = boards
    first, second, third = rows(home)
    assert f'#board-{ids["all cells"]}"' in first
    assert "8 of 8 cells that preset laptop asks for" in text(first)
    assert f'#board-{ids["stronger"]}"' in second
    assert "7 of 8 cells that preset laptop asks for. Stands after boards with a larger share of their cells" in text(
        second
    )
    assert "the missing one can only lower its number" in text(second)
    assert f'#board-{ids["unknown"]}"' in third
    assert "coverage not known" in text(third)
    assert "Stands last: it is not known" in text(third)
    assert "Boards with all the cells that their preset asks for come first" in text(home.read_text())


def test_best_known_is_an_upper_bound_wherever_it_is_a_headline(boards: tuple[Path, dict[str, int]]) -> None:
    home, ids = boards
    known = {row["board"]: row for row in json.loads((home.parent / "boards.json").read_text())}
    for row in rows(home):
        assert re.search(r"at most \d+\.\d\d ", text(row)), text(row)
    (page,) = (home.parent / "defences").glob("linac-*.html")
    shown = text(page.read_text())
    complete, partial = known[ids["all cells"]], known[ids["two cells"]]
    assert f"at most {complete['best_known']:.2f} %" in shown
    assert "8 of 8 cells that preset laptop asks for" in shown
    assert f"Best Known at most {partial['best_known']:.2f} %, 2 of 8 cells" in shown
    assert "Missing: mt@bypass" in shown
    assert complete["best_known_is"] == "at most"


def test_boards_on_the_same_images_are_one_row_and_keep_their_pages(boards: tuple[Path, dict[str, int]]) -> None:
    home, ids = boards
    (row,) = [row for row in rows(home) if 'data-name="linac"' in row]
    (link,) = re.findall(r'href="([^"]+)">60 examples</a>', row)
    page, anchor = link.split("#")
    assert anchor == f"board-{ids['two cells']}"
    assert f'id="{anchor}"' in (home.parent / page).read_text()
    assert "Also on 60 examples (2 of 8 cells)" in text(row).replace(" )", ")")
    assert (home.parent / "examples" / f"{anchor}.html").exists()
    listed = json.loads((home.parent / "boards.json").read_text())
    assert {entry["board"] for entry in listed} == set(ids.values()), "the data have all of them"


def test_the_main_board_of_a_defence_is_the_one_with_the_most_coverage(boards: tuple[Path, dict[str, int]]) -> None:
    home, ids = boards
    (page,) = (home.parent / "defences").glob("linac-*.html")
    (card,) = re.findall(r'<a class="card" href="#board-(\d+)"', page.read_text())
    assert int(card) == ids["all cells"]


@pytest.mark.needs_process
def test_the_order_stays_until_a_reader_asks_for_another(boards: tuple[Path, dict[str, int]], browser: Browser) -> None:
    home, _ = boards
    browser.open(home.as_uri())
    names = "[...document.querySelectorAll('.ours tr')].map(row => row.dataset.name)"
    assert browser.run(names) == ["linac", "block-shuffle", "none"]
    browser.run("document.querySelector('[data-sort=known]').click()")
    assert browser.run(names)[-1] == "linac"
    browser.run("document.querySelector('[data-sort=coverage]').click()")
    assert browser.run(names) == ["linac", "block-shuffle", "none"]
    browser.run("document.querySelector('[data-sort=coverage]').click()")
    assert browser.run(names)[0] == "none"
    browser.run("document.querySelector('[data-sort=place]').click()")
    assert browser.run(names) == ["linac", "block-shuffle", "none"]
