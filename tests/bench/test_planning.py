"""`bench plan`: its counts are those of a run, and what is stored is left out."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bench import estimate, plan, registry, spec
from bench.plan import Choice
from tests.conftest import bench

PLAN = ("plan", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--preset", "smoke", "--norm", "linf")


def test_the_counts_are_those_of_a_run_and_what_is_stored_is_left_out(honest: Path) -> None:
    spent = sqlite3.connect(honest / "results" / "bench.db").execute("SELECT SUM(gradients) FROM cell").fetchone()[0]
    whole = bench(*PLAN, "--examples", "6", "--db", "none.db", cwd=honest, BENCH_HOME=str(honest / "home"))
    assert whole.returncode == 0, whole.stderr
    assert f"1 cells, at most {spent} gradients, 0 queries and 6 transforms; about " in whole.stdout
    assert not (honest / "none.db").exists(), "a plan writes nothing"
    done = bench(*PLAN, "--examples", "6", cwd=honest, BENCH_HOME=str(honest / "home"))
    assert "1 cells, at most 0 gradients, 0 queries and 0 transforms; about 0 s" in done.stdout


@pytest.mark.parametrize(
    ("attack", "gradients", "queries", "transforms"),
    [
        ("pgd@nominal", 1000, 0, 0),
        ("mt@surrogate:3", 36_000, 0, 36_000),
        ("square@reconstruction:1", 0, 100_000, 100_000),
        ("aa@bypass", 100 + 900 + 900, 5000, 0),
    ],
)
def test_the_papers_budgets(attack: str, gradients: int, queries: int, transforms: int) -> None:
    paper = spec.resolve("paper")
    defence = registry.create("defences", "linac", paper.defences.get("linac", {}))
    choice = Choice(paper.engines, paper.budgets, paper.strategies("linac"))
    (pair,) = plan.pairs([attack], "linac", defence, choice)
    assert estimate.budget(pair) == estimate.Count(gradients, queries, transforms)


def test_the_paper_has_23_sources_for_transfer_and_bpda() -> None:
    paper = spec.resolve("paper")
    defence = registry.create("defences", "linac", paper.defences.get("linac", {}))
    choice = Choice(paper.engines, paper.budgets, paper.strategies("linac"))
    found = plan.pairs(["transfer", "bpda"], "linac", defence, choice)
    assert len({pair.source for pair in found}) == 23
    assert len(found) == 23 * 4
