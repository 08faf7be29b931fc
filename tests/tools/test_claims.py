"""docs/results.md is written from a store: its claims have three answers, and name the number behind each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.store import outcomes, queries
from bench.store.coverage import Required
from tests.leaderboard.stores import Filler
from tools import results_docs
from tools.claims import Claim, ReportedBoard, claims
from tools.judgement import Answer


def board(filler: Filler, name: str, n: int, cells: dict[str, float], *missing: str, keyed: bool = True) -> None:
    """A board on which about these shares of the examples withstand each cell; `missing` are required too."""
    strategies = {"bypass": "pba", "self": "standard", "nominal": "transfer", "reconstruction:1": "bpda"}
    made = filler.board(name, "linf", n, keyed=keyed, required=Required("laptop", (*cells, *missing)))
    strength = np.linspace(0, 1, n)
    filler.clean(made, 2, strength)
    for pair, share in cells.items():
        engine, source = pair.split("@")
        filler.fill(made, engine, source, strategies[source], share, strength)


def judged(filler: Filler) -> dict[str, Claim]:
    found = queries.boards(filler.database)
    shown = [ReportedBoard(filler.database, one, outcomes.outcomes(filler.database, one)) for one in found]
    return {claim.text.split(",")[0]: claim for claim in claims(shown, [filler.database])}


@pytest.fixture
def filler(tmp_path: Path) -> Filler:
    return Filler(tmp_path)


def test_a_defence_falls_where_any_board_shows_it(filler: Filler) -> None:
    board(filler, "none", 50, {"pgd@self": -2, "mt@self": -2}, keyed=False)
    assert judged(filler)["`none` falls to about 0"].answer is Answer.UNKNOWN
    board(filler, "none", 500, {"pgd@self": -2}, "mt@self", keyed=False)
    found = judged(filler)["`none` falls to about 0"]
    assert (found.answer, found.ours) == (Answer.HOLDS, "0.0 (0.0–0.8) on 500 examples")


def test_that_it_does_not_fall_needs_every_cell(filler: Filler) -> None:
    board(filler, "pca-full", 200, {"pgd@self": 0.6}, "mt@self", keyed=False)
    assert judged(filler)["`pca-full` falls to about 0"].answer is Answer.UNKNOWN
    board(filler, "pca-block", 200, {"pgd@self": 0.6}, keyed=False)
    assert judged(filler)["`pca-block` falls to about 0"].answer is Answer.FAILS


def test_the_order_of_strategies_is_a_paired_test(filler: Filler) -> None:
    board(filler, "linac", 20, {"pgd@bypass": 0.5, "pgd@nominal": 0.5, "pgd@reconstruction:1": 0.9})
    assert judged(filler)["against `linac`"].answer is Answer.UNKNOWN
    board(filler, "linac", 200, {"pgd@bypass": 0.2, "pgd@nominal": 0.5, "pgd@reconstruction:1": 0.9})
    assert judged(filler)["against `linac`"].answer is Answer.HOLDS
    board(filler, "linac", 300, {"pgd@bypass": 0.9, "pgd@nominal": 0.5, "pgd@reconstruction:1": 0.9})
    assert judged(filler)["against `linac`"].answer is Answer.FAILS


def test_what_is_known_of_some_examples_only_is_no_claim(filler: Filler) -> None:
    made, strength = (
        filler.board("linac", "linf", 200, required=Required("laptop", ("pgd@bypass",))),
        np.linspace(0, 1, 200),
    )
    filler.clean(made, 2, strength)
    for source, strategy, share in (
        ("bypass", "pba", 0.4),
        ("nominal", "transfer", 0.3),
        ("reconstruction:1", "bpda", 0.2),
    ):
        filler.on_survivors(made, "pgd", source, strategy, share, strength)
    assert not judged(filler), "the last two were shown what the bypass had left"
    (one,) = queries.boards(filler.database)
    reported = ReportedBoard(filler.database, one, outcomes.outcomes(filler.database, one))
    shown = list(results_docs.matrix(reported))
    bounds = next(cell.bounds for cell in one.cells if cell.source == "nominal")
    assert any(f"| {bounds.least / 2:.1f}–{bounds.most / 2:.1f} |" in line for line in shown)
    assert any(f"{100 * (one.best_known or 0) / 200:.1f} (" in line for line in shown if "Best Known" in line)


def test_the_page_has_the_answers_in_words(filler: Filler) -> None:
    board(filler, "none", 50, {"pgd@self": -2}, keyed=False)
    board(filler, "pca-full", 500, {"pgd@self": -2}, keyed=False)
    board(filler, "pca-block", 500, {"pgd@self": 0.6}, keyed=False)
    found = queries.boards(filler.database)
    shown = [ReportedBoard(filler.database, one, outcomes.outcomes(filler.database, one)) for one in found]
    lines = list(results_docs.page(shown, [filler.database], ["bench run"], ""))
    answers = {line.split("|")[1].strip(): line.split("|")[4].strip() for line in lines if "falls to about 0" in line}
    assert list(answers.values()) == ["cannot tell", "yes", "**no**"]
