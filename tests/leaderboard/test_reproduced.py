"""The paper's tables and figures from stored answers: counted again from the rows, and only what was asked for."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from bench.reproduction import contents, grids, latex, reproduced
from bench.reproduction.contents import Sizes
from bench.reproduction.results import Results
from bench.store import queries, schema
from bench.store.database import writing
from bench.store.outcomes import outcomes
from leaderboard import paper, reproductions, svg
from leaderboard.build import build
from tests.leaderboard import stores
from tests.leaderboard.conftest import Site

FAMILIES = {
    "nominal": ["nominal"],
    "surrogate:1–4": [f"surrogate:{k}" for k in range(1, 5)],
    "reconstruction:1–4": [f"reconstruction:{k}" for k in range(1, 5)],
}


def rows(site: Site, name: str) -> list[dict[str, str]]:
    with (site.folder / "paper" / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_table_1_is_counted_from_the_answers(site: Site) -> None:
    found = {(r["norm"], r["attack"], r["column"]): r for r in rows(site, "table1")}
    for board in queries.boards(site.database):
        if board.defence != "linac" or board.epsilon != stores.EPSILON[board.norm]:
            continue
        answers = outcomes(site.database, board)
        names = [(cell.attack, cell.source) for cell in answers.cells]
        for title, sources in FAMILIES.items():
            everything = answers.correct[:, 0].copy()
            for engine in contents.ENGINES:
                right = np.ones(60, bool)
                for source in sources:
                    right &= answers.correct[:, names.index((engine, source))]
                everything &= right
                assert int(found[board.norm, engine, title]["correct"]) == right.sum()
            assert int(found[board.norm, "best_known", title]["correct"]) == everything.sum()


def test_the_papers_numbers_stand_beside_ours(site: Site) -> None:
    for name in ("table1", "table3", "table7"):
        published = {
            (f.norm, f.attack, f.accuracy) for f in paper.numbers() if f.where == name and f.accuracy is not None
        }
        shown = {(r["norm"], r["attack"], float(r["paper"])) for r in rows(site, name) if r["paper"]}
        if name == "table3":  # clean accuracies are of no norm, and stand in both
            published = {p for p in published if p[1] != "clean"}
            shown = {s for s in shown if s[1] != "clean"}
        assert shown == published


def test_what_was_not_run_has_no_number_and_says_so(site: Site) -> None:
    missing = [r for r in rows(site, "table3") if r["column"] == "pca-full"]
    assert len(missing) == 12
    assert {(r["accuracy"], r["missing"]) for r in missing} == {("", "not run")}
    page = (site.folder / "paper" / "table3.html").read_text()
    assert "the classifier of pca-full is not trained yet" in page
    assert not json.loads((site.folder / "paper" / "table3.json").read_text())["complete"]


@pytest.fixture
def shuffle(tmp_path: Path) -> tuple[stores.Filler, int, np.ndarray]:
    """A store, its board of Block Pixel Shuffle with 30 unperturbed images, and how strong each is."""
    filler = stores.Filler(tmp_path)
    strength = filler.random.random(30)
    board = filler.board("block-shuffle", "linf", 30)
    filler.clean(board, 1.0, strength)
    return filler, board, strength


def test_a_cell_that_was_not_asked_for_counts_for_nothing(shuffle: tuple[stores.Filler, int, np.ndarray]) -> None:
    filler, board, strength = shuffle
    asked = filler.fill(board, "pgd", "bypass", "pba", 0.9, strength)
    filler.fill(board, "mt", "bypass", "pba", 0.0, strength)
    results = Results(filler.database, ("linf",))
    results.add("block-shuffle", "linf", board, {("pgd", "bypass"): asked[1:]})
    (grid,) = grids.grids("table7", Sizes(engines=("pgd",), transfer=()), results)
    known, alone = grid.rows["best_known"][-1].ours, grid.rows["pgd"][-1].ours
    assert known.count is not None
    assert known.count > 15
    assert alone.count is not None
    assert known.count <= alone.count
    assert [pair.ours.count for pair in grid.rows["mt"]] == [None] * 5


def test_an_unfinished_cell_makes_its_column_partial(shuffle: tuple[stores.Filler, int, np.ndarray]) -> None:
    filler, board, strength = shuffle
    done = filler.fill(board, "pgd", "bypass", "pba", 0.9, strength)
    half = filler.fill(board, "pgd", "nominal", "transfer", 0.9, strength, upto=10)
    results = Results(filler.database, ("linf",))
    results.add("block-shuffle", "linf", board, {("pgd", "bypass"): done[1:], ("pgd", "nominal"): half[1:]})
    made = reproduced.from_results("table7", Sizes(engines=("pgd",), transfer=("nominal",)), results)
    assert not made.complete
    (grid,) = made.grids
    assert grid.rows["pgd"][0].ours.unfinished == "running, 10/30"
    assert "1 of 2 cells" in grid.rows["pgd"][-1].ours.incomplete
    assert "$^{*}$" in str(made.latex("x"))


def test_a_new_site_keeps_and_lists_what_was_reproduced(tmp_path: Path) -> None:
    filler = stores.paper_like(tmp_path, n=10, surrogates=2)
    site = tmp_path / "site"
    stores.reproduce(filler, site)
    build(filler.database, site)
    build(filler.database, site)
    listed = (site / "paper.html").read_text()
    for name in contents.NAMES:
        assert (f'href="paper/{name}.html"' in listed) == (name in stores.REPRODUCED)
        assert (f"<code>bench reproduce {name}</code>" in listed) == (name not in stores.REPRODUCED)
    (site / "paper" / "table1.json").write_text("{}")
    assert {item.name for item in reproductions.items(site) if item.record} == set(stores.REPRODUCED) - {"table1"}


@pytest.mark.parametrize("mark", ["judged", "unjudged"])
def test_imported_cells_have_a_badge_and_unjudged_ones_no_number(tmp_path: Path, mark: str) -> None:
    filler = stores.Filler(tmp_path)
    strength = filler.random.random(20)
    board = filler.board("linac", "linf", 20)
    filler.clean(board, 0.9, strength)
    filler.fill(board, "pgd", "nominal", "transfer", 0.5, strength)
    filler.fill(board, "mt", "nominal", "transfer", 0.1, strength)
    with writing(filler.database) as connection:
        theirs = schema.attack.select().where(schema.attack.c.name == "mt")
        identity = connection.execute(theirs).one().id
        connection.execute(schema.cell.update().where(schema.cell.c.attack_id == identity).values(imported=mark))
    home = build(filler.database, tmp_path / "site")
    (own,) = (tmp_path / "site" / "defences").iterdir()
    said = "1 cell imported" + (", not judged here" if mark == "unjudged" else "<")
    assert said in home.read_text()
    assert said in own.read_text()
    (stored,) = queries.boards(filler.database)
    matrix = json.loads(next((tmp_path / "site" / "data").glob("*/board-1-matrix.json")).read_text())
    shown = {row["attack"]: row["nominal"] for row in matrix}
    assert (shown["mt"] is None) == (mark == "unjudged")
    assert stored.best_known is not None
    assert shown["Best Known"] == round(100 * stored.best_known / 20, 2)


def test_charts_below_each_other_are_one_drawing() -> None:
    axis = svg.Axis("x", 0, 1, [(0, "0"), (1, "1")])
    chart = svg.lines([svg.Series("a", [svg.Point(0, 1), svg.Point(1, 2)])], axis, title="t")
    both = svg.stacked([chart, chart])
    assert both.count("<svg") == 3
    assert f'viewBox="0 0 {svg.WIDTH} {2 * svg.HEIGHT}"' in both
    assert f'<svg y="{svg.HEIGHT}"' in both


def test_latex_is_escaped() -> None:
    assert latex.escaped("50 % of a_b & c#1–2") == r"50 \% of a\_b \& c\#1--2"
