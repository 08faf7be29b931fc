"""What is checked of sources is run once, stored, and said wherever a result stands; what is not checked says so."""

from __future__ import annotations

import dataclasses
import json
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from bench import spec
from bench.api import HealthBudget, UsageError, flags
from bench.evaluation import doubts
from bench.spec import PRESETS
from bench.store import health, queries
from bench.store.health import SourceHealth
from leaderboard.build import build
from tests.leaderboard.stores import Filler
from tests.processes import bench

N = 20
RUN = (
    "run",
    "--defence",
    "jpeg-10",
    "--attack",
    "pgd@self",
    "--preset",
    "checked.toml",
    "--examples",
    8,
    "--norm",
    "linf",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its source and its attack checked on a few examples."""
    folder = tmp_path_factory.mktemp("checked")
    text = (PRESETS / "smoke.toml").read_text()
    nothing = "images = 0\nattacked = 0\n"
    assert nothing in text
    (folder / "checked.toml").write_text(text.replace(nothing, "images = 6\nattacked = 4\nsteps = 10\nqueries = 50\n"))
    done = bench(*RUN, "--shard-size", 3, cwd=folder, BENCH_HOME=str(folder / "home"))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.needs_process
def test_a_run_checks_its_source_and_its_attack_once(run: Path) -> None:
    rows = json.loads(bench("results", "--what", "health", "--format", "json", cwd=run).stdout)
    found = {row["check"]: row for row in rows}
    assert {row["source"] for row in rows} == {"self"}
    assert found[flags.RANDOMISED]["examined"] == 6
    assert found[flags.SQUARE_WINS]["examined"] <= 6
    assert found[flags.WRONG_GRADIENT]["doubt"], "BPDA goes back through the identity"
    (cell,) = [
        one for one in json.loads(bench("results", "--format", "json", cwd=run).stdout) if one["attack"] == "pgd"
    ]
    assert 0 < cell["examined"][flags.UNFINISHED] <= 4, "the first examples, over two shards"
    assert "by the source's check" in cell["doubts"][flags.WRONG_GRADIENT]
    again = bench(*RUN, cwd=run, BENCH_HOME=str(run / "home"))
    assert "checking sources" not in again.stderr
    assert "0 done" in again.stdout
    assert sqlite3.connect(run / "results" / "bench.db").execute("SELECT COUNT(*) FROM health").fetchone() == (1,)


@pytest.mark.needs_process
def test_the_pages_of_a_run_show_the_checks(run: Path) -> None:
    (page,) = [path.read_text() for path in (run / "results" / "leaderboard" / "defences").glob("jpeg-10*.html")]
    table = page[page.index("Are the attacks sound?") :]
    assert re.search(r'<th scope="row">randomised-source</th><td class="n">0 of 6</td>', table)
    assert re.search(r'<th scope="row">gradient-mismatch</th><td class="n doubtful">\d of \d</td>', table)
    assert "not checked" not in (run / "results" / "leaderboard" / "index.html").read_text()


@pytest.mark.needs_process
def test_what_was_checked_does_not_keep_results_from_being_exported_and_verified(run: Path, tmp_path: Path) -> None:
    home = str(run / "home")
    assert bench("verify", cwd=run, BENCH_HOME=home).stdout.endswith("16 rows judged again, 0 problems\n")
    archive = str(tmp_path / "checked.zip")
    done = bench("export", archive, cwd=run, BENCH_HOME=home)
    assert done.returncode == 0, done.stderr
    taken = bench("import", archive, cwd=tmp_path, BENCH_HOME=home)
    assert taken.returncode == 0, taken.stderr
    (cell,) = [
        one for one in json.loads(bench("results", "--format", "json", cwd=tmp_path).stdout) if one["attack"] == "pgd"
    ]
    assert flags.WRONG_GRADIENT not in cell["doubts"], "the source was not checked here"
    assert cell["examined"][flags.UNFINISHED] > 0
    assert "not checked for signs of weak attacks: self" in bench("results", cwd=tmp_path).stdout


def filled(folder: Path) -> tuple[Filler, int, tuple[int, int, int]]:
    filler = Filler(folder)
    board, strength = filler.board("none", "linf", N, keyed=False), np.linspace(0, 1, N)
    filler.clean(board, 0.9, strength)
    return filler, board, filler.fill(board, "pgd", "self", "standard", 0.5, strength)


def test_no_doubt_is_not_the_same_as_not_checked(tmp_path: Path) -> None:
    filler, board, key = filled(tmp_path)
    (found,) = queries.boards(filler.database)
    assert found.unchecked == ("self",)
    build(filler.database, tmp_path / "site")
    assert ">not checked</span>" in (tmp_path / "site" / "index.html").read_text()
    health.record(filler.database, board, key[2], SourceHealth({}, {}, 1.0, "out of memory"))
    (found,) = queries.boards(filler.database)
    assert found.unchecked == ("self",), "a check that failed is none"
    health.record(filler.database, board, key[2], SourceHealth({}, {flags.NOISE_WINS: 16}, 1.0))
    (found,) = queries.boards(filler.database)
    assert found.unchecked == ()
    build(filler.database, tmp_path / "site")
    assert ">not checked</span>" not in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize(("count", "doubted"), [(1, False), (2, True)])
def test_what_is_found_of_a_source_is_a_doubt_about_attacks_with_gradients(
    tmp_path: Path, count: int, doubted: bool
) -> None:
    filler, board, key = filled(tmp_path)
    square = filler.fill(board, "square", "self", "standard", 0.6, np.linspace(0, 1, N))
    health.record(filler.database, board, key[2], SourceHealth({flags.NOISE_WINS: count}, {flags.NOISE_WINS: 16}, 1.0))
    (stored,) = queries.boards(filler.database)
    found = {(cell.attack_id, cell.source_id): cell.doubts for cell in stored.cells}
    assert (flags.NOISE_WINS in found[key[1], key[2]]) is doubted
    assert flags.NOISE_WINS not in found[square[1], square[2]]
    if doubted:
        assert found[key[1], key[2]][flags.NOISE_WINS].endswith("(2 of 16 examples, by the source's check)")
    assert flags.NOISE_WINS not in doubts.found(filler.database, board)[key[1], key[2]], "which is what is exported"


def test_a_doubt_about_a_source_changes_no_number(tmp_path: Path) -> None:
    filler, board, key = filled(tmp_path)
    filler.fill(board, "mt", "self", "standard", 0.7, np.linspace(0, 1, N))
    (before,) = queries.boards(filler.database)
    health.record(filler.database, board, key[2], SourceHealth({flags.NOISE_WINS: 9}, {flags.NOISE_WINS: 16}, 1.0))
    (after,) = queries.boards(filler.database)
    assert flags.NOISE_WINS in after.cells[0].doubts
    assert (after.best_known, after.best_adversary) == (before.best_known, before.best_adversary)
    assert before.best_known is not None
    assert 0 < before.best_known < N


def test_what_is_known_of_a_source_does_not_give_way_to_a_check_that_failed(tmp_path: Path) -> None:
    filler, board, key = filled(tmp_path)
    good, failed = SourceHealth({}, {flags.NOISE_WINS: 16}, 1.0), SourceHealth({}, {}, 2.0, "out of time")
    for one, known in ((failed, failed), (good, good), (failed, good)):
        health.record(filler.database, board, key[2], one)
        (stored,) = queries.boards(filler.database)
        assert stored.health[key[2]] == known


def test_a_count_of_the_engine_itself_is_of_all_examples(tmp_path: Path) -> None:
    """Its flag was looked for by a probe too, on fewer examples than the engine counts."""
    from bench.store import writer
    from bench.store.writer import ShardResult

    filler = Filler(tmp_path)
    board = filler.board("none", "linf", N, keyed=False)
    filler.clean(board, 0.9, np.linspace(0, 1, N))
    rows = [
        {"example_idx": i, "correct": 1, "pred": 0, "label": 0, "margin": 0.0, "distance": 0.01, "source_success": 0,
         "source_margin": 1.0, "restart": 0, "target": -1, "part": -1, "gradients": 0, "queries": 0}
        for i in range(N)
    ]  # fmt: skip
    key = filler.cell(board, "pgd", "self", "standard")
    result = ShardResult(rows, "test", 1.0, {flags.NOISE_WINS: 9}, (), None, None, {flags.NOISE_WINS: 4})
    writer.record_shard(filler.database, key, result, N)
    assert doubts.found(filler.database, board)[key[1], key[2]][flags.NOISE_WINS].endswith(f"(9 of {N} examples)")


def test_an_attack_that_succeeds_on_its_source_alone(tmp_path: Path) -> None:
    from bench.store import writer
    from bench.store.writer import ShardResult

    filler = Filler(tmp_path)
    board = filler.board("none", "linf", N, keyed=False)
    filler.clean(board, 0.9, np.linspace(0, 1, N))
    for attack, carried in (("pgd", 0), ("mt", 5)):
        rows = [
            {"example_idx": i, "correct": int(i >= carried), "pred": 0, "label": 0, "margin": 0.0, "distance": 0.01,
             "source_success": 1, "source_margin": -1.0, "restart": 0, "target": -1, "part": -1, "gradients": 0,
             "queries": 0}
            for i in range(N)
        ]  # fmt: skip
        key = filler.cell(board, attack, "self", "standard")
        writer.record_shard(filler.database, key, ShardResult(rows, "test", 1.0, {}, (), None, None), N)
    names = {cell.attack_id: cell.attack for cell in queries.boards(filler.database)[0].cells}
    found = {names[attack]: words for (attack, _), words in doubts.found(filler.database, board).items()}
    assert flags.NOT_CARRIED_OVER in found["pgd"]
    assert flags.NOT_CARRIED_OVER not in found["mt"]


def test_a_preset_says_how_much_is_checked_of_each_kind_of_source() -> None:
    laptop = spec.resolve("laptop")
    assert laptop.health_of("nominal") == HealthBudget(images=16)
    assert laptop.health_of("surrogate").images < laptop.health_of("nominal").images
    assert spec.resolve("smoke").health_of("nominal").images == 0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[health]\nimagse = 3", "health has no field 'imagse': did you mean 'images'?"),
        ("[health.surrogate]\nimages = -1", "images is -1"),
        ("[health]\nsteps = 1.5", "steps is 1.5"),
    ],
)
def test_what_is_wrong_with_it_is_named(tmp_path: Path, table: str, said: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text((PRESETS / "paper.toml").read_text() + f"\n{table}\n")
    with pytest.raises(UsageError, match=re.escape(said)):
        spec.resolve(str(path))


def test_the_budget_stands_in_the_record_of_a_run() -> None:
    assert dataclasses.asdict(spec.resolve("laptop"))["health"]["images"] == 16
