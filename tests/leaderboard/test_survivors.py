"""Boards whose attacks were shown what others had left: what is known is shown, in pages and files, and nothing more."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from bench.evaluation.report import print_boards
from bench.evaluation.run import Summary
from bench.reproduction import reproduced, writing
from bench.reproduction.results import Results
from bench.result import Result
from bench.store import evidence, queries
from bench.store.outcomes import RunRecord, order_of, outcomes
from bench.store.queries import Board
from leaderboard.reproductions import Record
from tests.leaderboard import stores
from tests.leaderboard.browser import Browser
from tests.leaderboard.conftest import Site
from tests.leaderboard.test_browser import AUDIT
from tests.leaderboard.test_pages import printed, read

pytestmark = pytest.mark.needs_process

BOUNDED = "document.querySelector('.bounded details')"


def board_of(site: Site, defence: str) -> Board:
    return next(board for board in queries.boards(site.database) if board.defence == defence)


def data(site: Site, defence: str, name: str) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """A table beside the page of a defence, as its JSON and its CSV have it."""
    (path,) = site.folder.glob(f"data/*/board-{board_of(site, defence).id}-{name}.json")
    return json.loads(path.read_text()), pd.read_csv(path.with_suffix(".csv"))


def rows_of(site: Site, what: str) -> list[dict[str, Any]]:
    """What `bench results` prints."""
    return [dict(row) for row in printed(site, what)]


def text_of(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.read_text()))


def between(least: int, most: int, total: int) -> str:
    return f"{100 * least / total:.1f}–{100 * most / total:.1f}"


def test_a_cell_says_what_it_was_shown_and_its_bounds_as_bench_results_does(surviving_site: Site) -> None:
    shown, bounded, unfinished = (dict[str, list[str]]() for _ in range(3))
    for page in (surviving_site.folder / "defences").iterdir():
        shown |= read(page, "data-cell").found
        bounded |= read(page, "data-bounded").found
        unfinished |= read(page, "data-unfinished").found
    partly = 0
    for cell in rows_of(surviving_site, "cells"):
        key, n = f"{cell['board']}/{cell['attack']}/{cell['source']}", cell["of"]
        if cell["attack"] == "clean":
            continue
        if cell["status"] != "done":
            assert unfinished.pop(key) == [f"running, broke {cell['broken']} of {cell['examples']}"]
        elif cell["examples"] == n:
            assert shown.pop(key)[0].strip() == f"{cell['accuracy']:.2f}"
        else:
            partly += 1
            ends = (cell["correct"], n - cell["broken"])
            assert (cell["scope"], cell["accuracy"], cell["low"], cell["high"]) == ("survivors", None, None, None)
            assert cell["broken"] == cell["examples"] - cell["correct"]
            assert (cell["accuracy_least"], cell["accuracy_most"]) == tuple(round(100 * end / n, 2) for end in ends)
            texts = [re.sub(r"\s+", " ", text).strip() for text in bounded.pop(key)]
            said = f"broke {cell['broken']} of the {cell['examples']} examples that it was shown; "
            said += "the others were broken before"
            if not cell["examples"]:
                said = "nothing was left for it: all examples were broken before"
            assert set(texts) == {f"{between(*ends, n) if cell['examples'] else 'none left'}{said}"}, key
    assert (shown, bounded, unfinished, partly) == ({}, {}, {}, 17)


def test_unions_have_bounds_and_best_known_is_one_number(surviving_site: Site) -> None:
    boards = {row["board"]: row for row in rows_of(surviving_site, "boards")}
    assert [row["scope"] for row in boards.values()] == ["survivors"] * 4
    for defence in ("linac", "block-shuffle", "jpeg-23", "none"):
        board = board_of(surviving_site, defence)
        found, csv = data(surviving_site, defence, "matrix")
        assert json.loads(csv.to_json(orient="records")) == [
            {name: None if value == "" else value for name, value in row.items()} for row in found
        ]
        table, said = {row["attack"]: row for row in found}, boards[board.id]
        known = table.pop("Best Known")
        assert known["Best Adversary"] == said["best_known"] == round(100 * (board.best_known or 0) / 60, 2)
        answers = outcomes(surviving_site.database, board)
        for engine, row in table.items():
            own = [c for c in answers.counted if answers.cells[c].attack == engine]
            if not own:
                assert row["Best Adversary"] is None
                continue
            bounds = evidence.left_right(answers, own)
            assert (board.adversaries[engine], engine in board.best_adversary) == (bounds, bounds.exact)
            percent = tuple(round(100 * end / 60, 2) for end in (bounds.least, bounds.most))
            assert (said["best_adversary_least"][engine], said["best_adversary_most"][engine]) == percent
            assert said["best_adversary"].get(engine) == row["Best Adversary"] == (percent[0] if bounds.exact else None)
            assert ("Best Adversary" in row["bounded"]) == (not bounds.exact)
            if not bounds.exact:
                assert (row["Best Adversary least"], row["Best Adversary most"]) == percent


def test_the_page_says_how_its_attacks_were_shown_examples_and_in_which_order(surviving_site: Site) -> None:
    text = text_of(surviving_site.page("linac"))
    assert "Its attacks were shown only what the ones before them had left" in text
    order = [f"{attack}@{source}" for attack, source, *_ in stores.IN_ORDER]
    assert f"go through them (6){', '.join(order)}, square@query" in text
    mixed = text_of(surviving_site.page("jpeg-23"))
    assert "Of its 6 cells, 4 were shown only what the ones before them had left" in mixed
    assert "go through them" not in mixed, "no run has said so of this defence"
    assert 'id="survivors"' in (surviving_site.folder / "about.html").read_text()


def test_which_attacks_matter_is_said_as_far_as_it_is_known(surviving_site: Site) -> None:
    for defence in ("linac", "jpeg-23"):
        board = board_of(surviving_site, defence)
        answers = outcomes(surviving_site.database, board)
        names, text = evidence.names(answers), text_of(surviving_site.page(defence))
        breakers, csv = data(surviving_site, defence, "breakers")
        assert len(breakers) == len(csv) == 5
        for row, breaker in zip(breakers, evidence.breakers(answers), strict=True):
            alone = breaker.alone
            assert (row["attack"], row["breaks"], row["shown"]) == (
                names[breaker.column],
                breaker.breaks,
                breaker.shown,
            )
            assert (row["only_this_one_least"], row["only_this_one_most"]) == (alone.least, alone.most)
            assert row["only_this_one"] == (alone.least if alone.exact else None)
            shown = f"{alone.least}" if alone.exact else f"{alone.least}–{alone.most}"
            assert f"{row['attack']}{breaker.breaks}{breaker.shown}{shown}" in text
        steps, _ = data(surviving_site, defence, "cover")
        for row, step in zip(steps, evidence.cover(answers), strict=True):
            assert row["best_known"] == (round(100 * step.left.least / 60, 2) if step.left.exact else None)
            ends = (round(100 * step.left.least / 60, 2), round(100 * step.left.most / 60, 2))
            assert (row["best_known_least"], row["best_known_most"]) == ends
        assert steps[-1]["best_known"] == round(100 * (board.best_known or 0) / 60, 2)
    (path,) = surviving_site.folder.glob(f"data/*/board-{board_of(surviving_site, 'linac').id}-surrogates.csv")
    curve = pd.read_csv(path)
    assert curve["best_known"].isna().all(), "its surrogates were shown what the bypass had left"
    assert (curve["best_known_most"] > curve["best_known_least"]).all()


def test_the_terminal_says_it_in_bounds_and_folds_what_was_shown_nothing(surviving_site: Site) -> None:
    def lines(defence: str) -> list[str]:
        written = io.StringIO()
        print_boards([board_of(surviving_site, defence)], Console(width=300, file=written))
        return [" ".join(line.replace("│", " ").split()) for line in written.getvalue().splitlines()]

    said, board = lines("jpeg-23"), board_of(surviving_site, "jpeg-23")
    for cell in board.cells:
        outside = "" if cell.inside_threat_model else " (outside the threat model)"
        row = next(line for line in said if line.startswith(f"{cell.attack}@{cell.source}{outside}"))
        if cell.on_survivors:
            ends = between(cell.bounds.least, cell.bounds.most, 60)
            assert row.endswith(f" {ends} broke {cell.broken}/{cell.n_done}")
        else:
            assert f" {100 * cell.n_correct / 60:.2f} " in row
            assert row.endswith(" 60")
    for engine, bounds in board.adversaries.items():
        row = next(line for line in said if line.startswith(f"Best Adversary {engine}"))
        known = f"{100 * bounds.least / 60:.2f} " if bounds.exact else between(bounds.least, bounds.most, 60)
        assert row.startswith(f"Best Adversary {engine} {known}")
    assert "scope survivors: 4 of 6 cells were shown only what the ones before them had left." in " ".join(said)
    assert not any("nothing was left" in line for line in said)
    idle = lines("block-shuffle")
    assert sum("@" in line for line in idle if not line.startswith(("nothing", "coverage"))) == 1, (
        "only the first has a row"
    )
    names = "aa@bypass, pgd@surrogate:1, pgd@surrogate:2, square@nominal, square@query"
    assert f"nothing was left for 5 cells: {names}" in idle
    assert any("mt@bypass" in line and "broke 6/21, running" in line for line in lines("linac"))


def test_a_notebook_shows_bounds_where_there_is_no_accuracy(surviving_site: Site) -> None:
    shown = Result(str(surviving_site.db), Summary(board_ids=[board_of(surviving_site, "linac").id]))._repr_html_()
    assert "<th>accuracy_least</th>" in shown
    assert "<th>broken</th>" in shown


def test_the_order_is_that_of_the_latest_run_that_says_so_for_this_defence(surviving_site: Site) -> None:
    board = dataclasses.replace(board_of(surviving_site, "linac"), defence_settings={"layers": 5, "width": 64})

    def run(order: dict[str, dict[str, list[str]]]) -> RunRecord:
        return RunRecord(1, "", "", "", {}, {}, "", None, order)

    named = {"linac": {"linf": ["a"]}, "linac[layers=5]": {"linf": ["b"]}, "linac[layers=6]": {"linf": ["c"]}}
    other = run({"none": {"linf": ["d"]}, "linac": {"l2": ["e"]}})
    assert order_of(board, [run({}), other, run(named), run({"linac": {"linf": ["f"]}})]) == ["b"]
    assert order_of(board, [run({"linac[layers=6]": {"linf": ["c"]}}), run({})]) == ()


def test_a_table_of_the_paper_is_not_complete_on_such_a_board(surviving_site: Site, tmp_path: Path) -> None:
    results, board = Results(surviving_site.database, ("linf",)), board_of(surviving_site, "linac")
    cells = {(c.attack, c.source): (c.attack_id, c.source_id) for c in board.cells if c.inside_threat_model}
    results.add("linac", "linf", board.id, cells)
    made = reproduced.from_results("table1", stores.SIZES, results)
    assert not made.complete
    (row,) = made.data[(made.data["attack"] == "square") & (made.data["column"] == "nominal")].to_dict("records")
    cell = next(cell for cell in board.cells if (cell.attack, cell.source) == ("square", "nominal"))
    ends = (round(100 * cell.bounds.least / 60, 2), round(100 * cell.bounds.most / 60, 2))
    assert (pd.isna(row["accuracy"]), row["least"], row["most"]) == (True, *ends)
    assert (
        row["missing"]
        == f"broke {cell.broken} of the {cell.n_done} examples that it was shown; the others were broken before"
    )
    bounds = between(cell.bounds.least, cell.bounds.most, 60)
    assert bounds.replace("–", "--") in (made.latex("") or "")
    record = Record("laptop", "2026-01-02T03:04:05+00:00", made.complete, 60, "", [], [])
    assert bounds in writing.write_files(tmp_path, made, record).read_text()
    curve = reproduced.from_results("figure3", stores.SIZES, results)
    assert not curve.complete
    assert curve.data["best_known_most"].notna().any()
    assert 'class="range s0"' in str(curve.figures[0].chart)


def test_a_comparison_and_the_home_page_name_no_number_that_is_not_known(surviving_site: Site) -> None:
    compared = text_of(surviving_site.folder / "compare.html")
    for defence in ("linac", "jpeg-23"):
        bounds = board_of(surviving_site, defence).adversaries["aa"]
        assert not bounds.exact
        assert between(bounds.least, bounds.most, 60) in compared
    strongest = {}
    for defence in ("linac", "block-shuffle", "jpeg-23", "none"):
        board = board_of(surviving_site, defence)
        found = evidence.strongest_strategy(outcomes(surviving_site.database, board))
        strongest[defence] = found[0] if found else "not known"
        home = (surviving_site.folder / "index.html").read_text()
        row = next(r for r in re.findall(r"<tr data-name.*?</tr>", home, re.DOTALL) if f"#board-{board.id}" in r)
        assert strongest[defence] in row
        assert ("attacks were shown only what those of another had left" in row) == (found is None)
    assert sorted(strongest.values())[-1] == "not known"
    row = re.search(r"Strongest strategy</th>.*?</tr>", (surviving_site.folder / "compare.html").read_text(), re.DOTALL)
    assert row
    assert sorted(re.findall(r">([^<>]+)</td>", row[0])) == sorted(strongest.values())


def test_the_explanation_of_an_entry_is_opened_by_keyboard_and_by_touch(surviving_site: Site, browser: Browser) -> None:
    browser.open(surviving_site.page("linac").as_uri())
    said = f"{BOUNDED}.querySelector('span').checkVisibility()"
    assert not browser.run(said)
    browser.run(f"{BOUNDED}.querySelector('summary').focus()")
    browser.key("Enter", 13)
    assert browser.run(said)
    assert re.search(r"broke \d+ of the \d+ examples that it was shown", browser.run(f"{BOUNDED}.textContent"))
    browser.run(f"{BOUNDED}.querySelector('summary').click()")
    assert not browser.run(said)


def test_the_explorer_says_which_attacks_were_not_shown_an_example(surviving_site: Site, browser: Browser) -> None:
    board = board_of(surviving_site, "linac")
    found = outcomes(surviving_site.database, board)
    chosen = evidence.shown_cells(found)
    page = (surviving_site.folder / "examples" / f"board-{board.id}.html").as_uri()
    assert found.clean is not None
    broken = next(i for i in range(60) if found.clean[i] and found.wrong[i].any() and not found.shown[i].all())
    attacked = next(i for i in range(60) if found.shown[i, found.counted].all())
    wrong = next(i for i in range(60) if not found.clean[i])
    for example in (broken, attacked, wrong):
        browser.open(f"{page}#example-{example}")
        browser.wait_for("document.getElementById('detail-rows').rows.length")
        rows = browser.run(
            "[...document.getElementById('detail-rows').rows].map(r => [...r.cells].map(c => c.textContent))"
        )
        assert len(rows) == len(found.cells)
        unseen = [row[0] for row in rows if row[1] == "not shown"]
        assert len(unseen) == int((~found.shown[example]).sum())
        assert all(row[2] == "–" for row in rows if row[1] == "not shown")
        story = browser.run("document.getElementById('detail-story').textContent")
        name = evidence.names(found)[chosen[example]]
        assert ("Broken first by" in story) == (example == broken)
        assert (name in story) == (example != wrong)
        assert browser.run(AUDIT)["problems"] == []
    options = browser.run("[...document.querySelectorAll('#outcome option')].map(o => o.textContent)")
    first = next(cell for cell in board.cells if (cell.attack, cell.source) == ("pgd", "bypass"))
    assert f"pgd@bypass ({first.broken} of {first.n_done} shown)" in options


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_its_pages_fit_and_can_be_read(surviving_site: Site, browser: Browser, width: int, theme: str) -> None:
    browser.resize(width)
    pages = [f"defences/{surviving_site.page(name).name}" for name in ("linac", "block-shuffle")]
    for name in ("index.html", "compare.html", *pages):
        browser.open((surviving_site.folder / name).as_uri())
        browser.run(f"document.documentElement.dataset.theme = '{theme}'")
        for state in ("false", "true"):
            browser.run(f"document.querySelectorAll('details').forEach(d => {{ d.open = {state}; }})")
            assert browser.run(AUDIT)["problems"] == [], name
            assert browser.run("document.documentElement.scrollWidth") <= width, name
