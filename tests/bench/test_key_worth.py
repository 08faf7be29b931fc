"""What the key is worth: what is left of Best Known for who has the key, or may ask, by rows that count towards nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy.engine import Engine as Database

from bench.evaluation.report import key_worth
from bench.store import frames, queries, schema, writer
from bench.store.database import writing
from bench.store.key_worth import KeyWorth, Left
from tests.processes import bench
from tests.stores import a_board, a_cell, fill, shard

ROOT = Path(__file__).parents[2]
CLEAN = np.array([1, 1, 1, 1, 0, 1, 1, 1], bool)
PGD = np.array([1, 1, 1, 0, 1, 1, 1, 1], bool)  # Best Known: 0, 1, 2, 5, 6, 7


def outside(database: Database, board: int, attack: str, strategy: str, correct: list[bool]) -> None:
    key = a_cell(database, board, attack, strategy, inside=False, strategy=strategy)
    writer.record_shard(database, key, shard(0, correct), 8)


@pytest.fixture
def board(database: Database) -> int:
    """A board whose Best Known is 6 of 8."""
    made = a_board(database, 8)
    fill(database, made, {(schema.CLEAN, schema.CLEAN): CLEAN, ("pgd", "s"): PGD})
    return made


def found(database: Database) -> queries.Board:
    (one,) = queries.boards(database)
    return one


def test_left_is_what_withstands_the_counted_cells_and_those_with_more(database: Database, board: int) -> None:
    before = found(database)
    assert (before.best_known, before.key_worth) == (6, KeyWorth(None, None))
    assert key_worth(before) == ["what the key is worth: not measured"]
    outside(database, board, "pgd", "key-leaked", [True, True, False, True, True, True, False, False])
    assert found(database).key_worth == KeyWorth(Left(3), None), "0, 1 and 5: example 3 stands under the key alone"
    outside(database, board, "mt", "key-leaked", [False, True, True, True, True, True, True, True])
    outside(database, board, "square", "query", [True] * 7 + [False])
    after = found(database)
    assert after.key_worth == KeyWorth(Left(2), Left(5))
    assert (after.best_known, after.best_adversary, after.counted, after.left_out) == (
        6, before.best_adversary, before.counted, (),
    )  # fmt: skip
    assert not after.partial


def test_it_is_said_with_intervals(database: Database, board: int) -> None:
    outside(database, board, "pgd", "key-leaked", [True, True] + [False] * 6)
    one = found(database)
    assert key_worth(one) == [
        "what the key is worth: of Best Known, 75.00 % (40.9 to 92.9), is left",
        "  with the key: 25.00 % (7.1 to 59.1), 50.00 points less (21.5 to 78.5)",
        "  with queries: not measured",
    ]
    row = frames.boards_frame([one]).iloc[0]
    assert [row[f"key_leaked{end}"] for end in ("", "_low", "_high")] == [25.0, 7.15, 59.07]
    assert [row[f"key_worth{end}"] for end in ("", "_low", "_high")] == [50.0, 21.52, 78.48]
    assert row[["queried", "query_worth", "query_worth_low"]].isna().all()


def test_only_complete_and_judged_cells_outside_the_threat_model_say_so(database: Database, board: int) -> None:
    half = a_cell(database, board, "pgd", "key-leaked", inside=False, strategy="key-leaked")
    writer.record_shard(database, half, shard(0, [False] * 4), 8)
    inside = a_cell(database, board, "mt", "key-leaked", strategy="query")
    writer.record_shard(database, inside, shard(0, [True] * 8), 8)
    assert found(database).key_worth == KeyWorth(None, None)
    writer.record_shard(database, half, shard(4, [False] * 4), 8)
    assert found(database).key_worth == KeyWorth(Left(0), None)
    with writing(database) as connection:
        connection.execute(
            schema.cell.update().where(writer.of_cell(schema.cell, half)).values(imported=schema.UNJUDGED)
        )
    assert found(database).key_worth == KeyWorth(None, None)


def test_without_a_key_or_best_known_there_is_nothing_to_say(database: Database) -> None:
    board = a_board(database, 8)
    fill(database, board, {("pgd", "s"): PGD})
    assert found(database).key_worth is None
    assert key_worth(found(database)) == []
    fill(database, board, {(schema.CLEAN, schema.CLEAN): CLEAN})
    with writing(database) as connection:
        connection.execute(schema.defence.update().values(keyed=False))
    assert found(database).key_worth is None


@pytest.mark.needs_process
def test_a_run_of_all_says_it_without_being_asked(tmp_path: Path) -> None:
    smoke = (ROOT / "bench" / "presets" / "smoke.toml").read_text()
    small = re.sub(r"^(examples|steps|queries|targets) = .*", r"\1 = 2", smoke, flags=re.MULTILINE)
    small = small.replace("adversarial = false", "adversarial = false\nsurrogates = 0")
    (tmp_path / "small.toml").write_text(small.replace('norms = ["linf", "l2"]', 'norms = ["linf"]'))
    asked = ("--defence", "block-shuffle", "--attack", "all", "--preset", "small.toml")
    planned = bench("plan", *asked, cwd=tmp_path)
    notice = "block-shuffle: reference rows, outside the threat model, which count towards nothing: "
    assert f"{notice}pgd@key-leaked, square@query\n" in planned.stdout, planned.stderr
    assert "key-leaked (reference)" in planned.stdout
    assert "block-shuffle: 10 cells" in planned.stdout
    done = bench("run", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{notice}pgd@key-leaked, square@query\n" in done.stderr
    assert "cells: 10 done" in done.stdout
    assert "what the key is worth: of Best Known, " in done.stdout
    assert re.search(r"  with the key: .* points less\s\(.* to .*\)\s\(reduced\)", done.stdout)
    cells = json.loads(bench("results", "--format", "json", cwd=tmp_path).stdout)
    outside = {f"{cell['attack']}@{cell['source']}": cell for cell in cells if not cell["inside_threat_model"]}
    assert outside.keys() == {"pgd@key-leaked", "square@query"}
    assert all(cell["reduced"] for cell in outside.values())
    (board,) = json.loads(bench("results", "--format", "json", "--what", "boards", cwd=tmp_path).stdout)
    assert (board["cells"], board["left_out"], board["partial"]) == (8, 0, False)
    assert board["key_leaked_reduced"] is True
    assert board["key_worth"] == pytest.approx(board["best_known"] - board["key_leaked"])
    (page,) = [path.read_text() for path in (tmp_path / "results" / "leaderboard" / "defences").glob("*.html")]
    section = page[page.index("What the key is worth</h3>") :].partition("</table>")[0]
    assert "not measured" not in section
    assert f"{board['key_worth']:.2f}</td>" in section
    assert bench("verify", cwd=tmp_path).returncode == 0
