"""Runs on survivors: the same rows and the same Best Known as on everything, with fewer of the former."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from bench.store import queries
from bench.store.database import open_database
from tests.conftest import bench
from tools.compare_rows import Rows, snapshot

pytestmark = pytest.mark.needs_process

RUN = (
    "run", "--defence", "block-shuffle", "--preset", "smoke", "--norm", "l2", "--examples", "14",
    "--attack", "mt", "--attack", "pgd[steps=5]", "--attack", "pgd[steps=5]@key-leaked",
    "--attack", "square[queries=20]@query", "--outside-threat-model",
)  # fmt: skip


def ran(folder: Path, *more: str) -> str:
    done = bench(*RUN, *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("everything")
    ran(folder, "--scope", "all")
    return folder


@pytest.fixture(scope="module")
def survivors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("survivors")
    (folder / "said").write_text(ran(folder, "--scope", "survivors", "--shard-size", "5", "--batch-size", "3"))
    return folder


def results(folder: Path) -> Rows:
    return snapshot(str(folder / "results" / "bench.db"))["result"]


def board(folder: Path) -> queries.Board:
    database = open_database(str(folder / "results" / "bench.db"), create=False)
    (found,) = queries.boards(database)
    database.dispose()
    return found


def order(folder: Path) -> list[str]:
    run = sqlite3.connect(folder / "results" / "bench.db").execute("SELECT order_json FROM run").fetchall()[-1]
    return list(json.loads(run[0])["block-shuffle"]["l2"])


def expected(rows: Rows, names: list[str]) -> set[tuple[str, int]]:
    """By the definition: which cells an example goes through, from the rows of a run on everything."""
    right = {(f"{attack}@{source}", example): row["correct"]
             for (_, _, _, attack, _, source, _, example), row in rows.items()}  # fmt: skip
    shown = set()
    for example in range(14):
        standing = bool(right["clean@clean", example])
        shown.add(("clean@clean", example))
        for name in names:
            if standing:
                shown.add((name, example))
                standing = bool(right[name, example]) or name.endswith(("key-leaked", "query"))
    return shown


def test_every_row_is_one_of_the_run_on_everything_and_none_is_missing(everything: Path, survivors: Path) -> None:
    full, some = results(everything), results(survivors)
    assert {key: full[key] for key in some} == some
    found = {(f"{attack}@{source}", example) for (_, _, _, attack, _, source, _, example) in some}
    assert found == expected(full, order(survivors))
    assert len(some) < len(full) / 2
    assert order(survivors)[-2:] == ["pgd@key-leaked", "square@query"]


def test_the_numbers_of_the_board_are_the_same(everything: Path, survivors: Path) -> None:
    one, other = board(everything), board(survivors)
    assert (one.best_known, one.coverage, one.left_out) == (other.best_known, other.coverage, ())
    assert one.key_worth == other.key_worth
    assert (one.scope, other.scope) == ("all", "survivors")
    partly = [cell for cell in other.cells if cell.on_survivors]
    assert partly
    full = {(cell.attack, cell.source): cell for cell in one.cells}
    for cell in partly:
        whole = full[cell.attack, cell.source]
        assert cell.accuracy is None
        assert cell.bounds.least <= whole.n_correct <= cell.bounds.most
    for engine, bounds in other.adversaries.items():
        assert bounds.least <= one.best_adversary[engine] <= bounds.most


def test_a_run_says_what_each_attack_broke(survivors: Path) -> None:
    said = (survivors / "said").read_text()
    first = next(cell for cell in board(survivors).cells if f"{cell.attack}@{cell.source}" == order(survivors)[0])
    assert f"done: block-shuffle l2 {order(survivors)[0]}: broke {first.broken} of {first.n_done}" in said
    assert bench("verify", cwd=survivors).stdout.endswith(f"{len(results(survivors))} rows judged again, 0 problems\n")


def test_a_board_may_go_on_in_the_other_scope(everything: Path, survivors: Path) -> None:
    before = board(survivors)
    assert "0 done (0 resumed), 6 there already" in bench(*RUN, "--scope", "survivors", cwd=survivors).stdout
    ran(survivors, "--scope", "all")
    after = board(survivors)
    assert results(survivors) == results(everything)
    assert (after.best_known, after.scope) == (before.best_known, "all")
    assert "6 there already" in bench(*RUN, "--scope", "survivors", cwd=survivors).stdout


def test_a_scope_that_is_none_is_refused(tmp_path: Path) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text('examples = 4\nscope = "some"\n[epsilon]\nlinf = "8/255"\n')
    done = bench("run", "--defence", "none", "--attack", "pgd", "--preset", str(preset), cwd=tmp_path)
    assert (done.returncode, "scope is 'some'; it must be all or survivors" in done.stderr) == (2, True)
