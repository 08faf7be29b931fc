"""The comparison of two checkouts: rows that are the same are told so, and every kind of difference is found and named."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.stores import a_board, fill, opened
from tools import compare_rows


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A board with two cells of four examples."""
    opened_database = opened(tmp_path)
    right = np.array([True, False, True, True])
    fill(opened_database, a_board(opened_database, 4), {("clean", "clean"): right, ("pgd", "nominal"): ~right})
    opened_database.dispose()
    return tmp_path / "bench.db"


def compared(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["compare_rows.py", *map(str, arguments)])
    compare_rows.main()


def test_the_same_rows_are_told_in_one_line(
    database: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    other = database.with_name("other.db")
    shutil.copyfile(database, other)
    with sqlite3.connect(other) as connection:  # what may differ: times, ids of runs, words for people, new columns
        connection.execute("UPDATE cell SET seconds = 99, updated = 'later'")
        connection.execute("UPDATE defence SET description = 'In other words.'")
        connection.execute("ALTER TABLE result ADD COLUMN depth FLOAT")
    compared(monkeypatch, database, other)
    assert capfd.readouterr().out == (
        "the same 8 rows, value for value (1 defences, 2 attacks, 2 sources, 1 boards, 2 cells)\n"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE result SET margin = 0.25 WHERE example_idx = 3 AND attack_id = 2", "3: margin is 0.5 before, 0.25 after"),
        ("DELETE FROM result WHERE example_idx = 2 AND attack_id = 2", "pgd a-pgd nominal s-nominal 2: only before"),
        ("ALTER TABLE result DROP COLUMN distance", "distance is 0.01 before, and there is no such column after"),
        ("UPDATE attack SET fingerprint = 'other' WHERE name = 'pgd'", "attack pgd other: only after"),
        ("UPDATE board SET fingerprint = 'other'", "board d linf b-d: only before"),
        ("UPDATE source SET fingerprint = 'other' WHERE name = 'nominal'", "pgd a-pgd nominal other: only after"),
        ("UPDATE cell SET n_correct = 4 WHERE attack_id = 2", "n_correct is 1 before, 4 after"),
        ("UPDATE defence SET weights_sha256 = 'v'", "defence d d: weights_sha256 is 'w' before, 'v' after"),
    ],
)  # fmt: skip
def test_a_difference_is_named(database: Path, monkeypatch: pytest.MonkeyPatch, change: str, said: str) -> None:
    other = database.with_name("other.db")
    shutil.copyfile(database, other)
    with sqlite3.connect(other) as connection:
        connection.execute(change)
    monkeypatch.setattr(compare_rows, "MOST", 1000)
    with pytest.raises(SystemExit, match="differences:") as ended:
        compared(monkeypatch, database, other)
    assert said in str(ended.value)


CHECKOUT = """#!{python}
import os, pathlib, shutil, sys
assert sys.argv[1:4] == ["-m", "bench.cli", "run"], sys.argv
assert sys.argv[4:8] == ["--defence", "none", "--preset", "smoke"], sys.argv
assert os.getcwd() == {folder!r} and "BENCH_KEY" not in os.environ
assert pathlib.Path(os.environ["BENCH_HOME"]).parent == pathlib.Path(sys.argv[-1]).parent
shutil.copyfile({database!r}, sys.argv[-1])
sys.exit({code})
"""


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.needs_process
def test_a_checkout_is_run_by_its_own_python_in_a_home_of_its_own(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    checkout = tmp_path / "checkout"
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    script = CHECKOUT.format(python=sys.executable, folder=str(checkout), database=str(database), code=code)
    python.write_text(script)
    python.chmod(0o755)
    monkeypatch.setenv("BENCH_KEY", "7")
    arguments = (database, checkout, "--run", "--defence none --preset smoke")
    if code:
        with pytest.raises(SystemExit, match=r"checkout failed, exit code 1"):
            compared(monkeypatch, *arguments)
    else:
        compared(monkeypatch, *arguments)
        assert "the same 8 rows" in capfd.readouterr().out
