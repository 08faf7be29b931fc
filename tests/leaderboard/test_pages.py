"""The pages as files: their numbers are those of `bench results`, their links lead somewhere, nothing is from elsewhere."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from leaderboard.build import build
from tests.leaderboard import stores
from tests.leaderboard.conftest import Site
from tests.processes import bench, python
from tests.progress import Recorded


class Tagged(HTMLParser):
    """The text of every element that has one of some attributes, by the attribute's value."""

    def __init__(self, *wanted: str) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self.links: list[str] = []
        self._wanted, self._open = wanted, list[tuple[str, str]]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("href", "src") if name in values]
        for name in self._wanted:
            if name in values:
                self._open.append((tag, str(values[name])))
                self.found.setdefault(str(values[name]), []).append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for _, value in self._open:
            self.found[value][-1] += data


def read(path: Path, *wanted: str) -> Tagged:
    parser = Tagged(*wanted)
    parser.feed(path.read_text())
    return parser


def printed(site: Site, what: str) -> list[dict[str, Any]]:
    done = bench("results", "--format", "json", "--what", what, "--db", site.db, cwd=site.folder)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.needs_process
def test_every_cell_is_shown_as_bench_results_prints_it(site: Site) -> None:
    shown: dict[str, list[str]] = {}
    unfinished: dict[str, list[str]] = {}
    for page in (site.folder / "defences").iterdir():
        shown |= read(page, "data-cell").found
        unfinished |= read(page, "data-unfinished").found
    cells = [cell for cell in printed(site, "cells") if cell["attack"] != "clean"]
    assert len(cells) > 100
    for cell in cells:
        key = f"{cell['board']}/{cell['attack']}/{cell['source']}"
        if cell["status"] == "done":
            accuracy = f"{cell['accuracy']:.2f}"
            assert [text.strip().removesuffix("?") for text in shown.pop(key)] == [accuracy], key
        else:
            assert unfinished.pop(key) == [f"{cell['status']}, {cell['examples']}/{cell['of']}"], key
    assert (shown, unfinished) == ({}, {})


@pytest.mark.needs_process
def test_the_home_page_has_the_numbers_of_bench_results(site: Site) -> None:
    page = site.home.read_text()
    for board in printed(site, "boards"):
        row = next(r for r in re.findall(r"<tr data-name.*?</tr>", page, re.DOTALL) if f'#board-{board["board"]}"' in r)
        text = re.sub(r"<[^>]+>", " ", row)
        for value in (board["best_known"], board["clean"]):
            assert f" {value:.2f} " in text
        assert f" {board['best_known_low']:.1f} to {board['best_known_high']:.1f} " in text
        assert str(board["preset"]) in text
        assert ("partial" in text) == board["partial"]
        assert str(board["updated"])[:10] in text


@pytest.mark.needs_process
def test_totals_are_those_of_bench_results(site: Site) -> None:
    for board in printed(site, "boards"):
        (path,) = site.folder.glob(f"data/*/board-{board['board']}-matrix.json")
        table = {row["attack"]: row for row in json.loads(path.read_text())}
        assert table.pop("Best Known")["Best Adversary"] == board["best_known"]
        complete = {name: row["Best Adversary"] for name, row in table.items() if row["Best Adversary"] is not None}
        assert complete == board["best_adversary"]


def test_budgets_of_single_sources_are_said_and_do_not_split_a_row(site: Site) -> None:
    (page,) = (page for page in site.pages() if "surrogate:1" in page.read_text() and page.parent.name == "defences")
    text = re.sub(r"<[^>]+>", "", page.read_text())
    assert "pgd (2)" not in text
    assert "Some sources have budgets of their own" in text
    assert re.search(r"pgd on surrogate:1, surrogate:2, surrogate:3, surrogate:4\s*steps = 5", text)


@pytest.mark.needs_process
def test_the_files_beside_the_pages_are_what_bench_results_prints(site: Site) -> None:
    for what in ("cells", "boards"):
        assert json.loads((site.folder / f"{what}.json").read_text()) == printed(site, what)


def test_every_link_leads_somewhere_and_nothing_is_from_elsewhere(site: Site, hostile_site: Site) -> None:
    for one in (site, hostile_site):
        for page in one.pages():
            ids = set(re.findall(r'\sid="([^"]+)"', page.read_text()))
            for link in read(page).links:
                assert not re.match(r"(https?:)?//", link), f"{page.name} links to {link}"
                target, _, anchor = link.partition("#")
                if target == "data:,":
                    continue
                other = page.parent / unquote(target) if target else page
                assert other.exists(), f"{page.name} links to {link}"
                if anchor and other.suffix == ".html":
                    there = ids if other == page else set(re.findall(r'\sid="([^"]+)"', other.read_text()))
                    assert html.unescape(anchor) in there, f"{page.name} links to {link}"


def test_boards_whose_attacks_were_shown_everything_say_nothing_of_what_others_left(site: Site) -> None:
    for page in site.pages():
        assert "shown only what" not in page.read_text(), page.name
        assert 'class="limits"' not in page.read_text(), page.name


def test_every_chart_has_its_data(site: Site) -> None:
    page = site.page("linac")
    charts = re.findall(r"<figure>.*?</figure>", page.read_text(), re.DOTALL)
    assert len(charts) == 3  # surrogates in two norms, and epsilon in one
    for chart in charts:
        (name,) = re.findall(r'href="([^"]+\.csv)"', chart)
        assert len((page.parent / name).read_text().splitlines()) > 2


def test_the_page_says_which_part_of_autoattack_broke_how_many(site: Site) -> None:
    (page,) = site.folder.glob("**/defences/none*.html")
    text = re.sub(r"<[^>]+>", "", page.read_text())
    assert "aa@self" in text
    assert "apgd-ce 15, apgd-t 15, fab-t 15, square 15" in text


def test_hostile_names_are_text(hostile_site: Site) -> None:
    for page in hostile_site.pages():
        text = page.read_text()
        assert "<img" not in text, page.name
        assert 'onerror="' not in text, page.name
        assert not re.search(r"<script(?! src=)", text), page.name
        assert "49" not in re.sub(r"[0-9a-f]{6,}|\d+\.\d+|\{\{ 7\*7 \}\}", "", re.sub(r"<[^>]*>", "", text)).split()


def test_an_empty_store_has_a_site_too(tmp_path: Path) -> None:
    page = build(stores.Filler(tmp_path).database, tmp_path / "site")
    assert "No results yet" in page.read_text()
    assert "35.32" in page.read_text()


def test_a_build_shows_its_progress_to_the_end(tmp_path: Path) -> None:
    filler, shown = stores.Filler(tmp_path), Recorded()
    for name in ("one", "two"):
        board = filler.board(name, "linf", 10)
        filler.clean(board, 0.9, filler.random.random(10))
        filler.fill(board, "pgd", "nominal", "transfer", 0.5, filler.random.random(10))
    build(filler.database, tmp_path / "site", track=shown.track)
    assert shown.done() == {"building the leaderboard": 40}


def test_a_board_without_its_clean_images_counts_for_nothing(tmp_path: Path) -> None:
    filler = stores.Filler(tmp_path)
    strength = filler.random.random(10)
    board = filler.board("d", "linf", 10)
    filler.fill(board, "pgd", "nominal", "transfer", 0.5, strength, upto=4)
    page = build(filler.database, tmp_path / "site")
    assert "partial" in page.read_text()
    (own,) = (tmp_path / "site" / "defences").iterdir()
    assert "running, 4/10" in own.read_text()


def test_a_new_build_takes_away_its_old_files_and_no_others(tmp_path: Path) -> None:
    first, second = stores.Filler(tmp_path / "a"), stores.Filler(tmp_path / "b")
    board = first.board("old", "linf", 5)
    first.clean(board, 0.9, first.random.random(5))
    site = tmp_path / "site"
    build(first.database, site)
    (site / "mine.txt").write_text("the user's own")
    assert list((site / "defences").glob("old-*.html"))
    build(second.database, site)
    assert not list((site / "defences").glob("old-*.html"))
    assert (site / "mine.txt").exists()
    (site / "site.json").write_text(json.dumps(["../outside.txt"]))
    (tmp_path / "outside.txt").write_text("not of the site")
    build(second.database, site)
    assert (tmp_path / "outside.txt").exists()


@pytest.mark.needs_process
def test_building_the_site_does_not_import_tensorflow(site: Site, tmp_path: Path) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print([m for m in ('tensorflow', 'keras', 'ray') if m in sys.modules], file=sys.stderr))\n"
        f"from bench.cli import main; sys.argv = ['bench', 'leaderboard', '--db', {str(site.db)!r}, '--out', 'made']; main()"
    )
    done = python(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["leaderboard", "--out", "made"], ["serve", "--out", "nothing-here"]])
@pytest.mark.needs_process
def test_the_commands(site: Site, tmp_path: Path, arguments: list[str]) -> None:
    done = bench(*arguments, "--db", site.db, cwd=tmp_path)
    if arguments[0] == "leaderboard":
        assert done.stdout.strip() == "made/index.html"
        assert (tmp_path / "made" / "index.html").read_text() == site.home.read_text()
    else:
        assert done.returncode == 2
        assert "'bench leaderboard' builds one" in done.stderr
