"""A norm from outside, all the way from a request to its page."""

from __future__ import annotations

import dataclasses
import json
import re
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench import spec
from bench.data import datasets
from bench.vault import referee
from tests.l1 import install_l1
from tests.processes import bench, python

EPSILON = 6.0
ATTACKS = ("--attack", "pgd@self", "--attack", "square@self")


@dataclasses.dataclass(frozen=True)
class Outside:
    """A run in L∞ and in a norm from outside."""

    folder: Path
    package: str
    options: tuple[str, ...]
    said: str

    def bench(self, *arguments: str, installed: bool = True) -> subprocess.CompletedProcess[str]:
        """As the user who has the norm types it, or one who has not."""
        path = self.package if installed else ""
        return bench(*arguments, cwd=self.folder, BENCH_HOME=str(self.folder / "home"), PYTHONPATH=path)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    """One package has the norm, a preset its epsilon, and nothing else knows of it."""
    folder = tmp_path_factory.mktemp("outside")
    text = (spec.PRESETS / "smoke.toml").read_text()
    text = text.replace('norms = ["linf", "l2"]', 'norms = ["l1", "linf"]').replace(
        "[epsilon]", f"[epsilon]\nl1 = {EPSILON}"
    )
    (folder / "own.toml").write_text(text)
    options = ("--preset", "own.toml", "--examples", "4")
    ready = Outside(folder, install_l1(folder / "packages"), options, "")
    done = ready.bench("run", "--defence", "none", *ATTACKS, *options)
    assert done.returncode == 1, done.stderr  # Square cannot work in it
    assert "Traceback" not in done.stderr
    return dataclasses.replace(ready, said=done.stderr)


@pytest.mark.needs_process
def test_there_are_no_reference_rows_in_it(outside: Outside) -> None:
    """They are computed with the key, and so with built-in norms alone."""
    done = outside.bench("plan", "--defence", "block-shuffle", "--attack", "all", *outside.options)
    assert done.returncode == 0, done.stderr
    assert "key-leaked" not in done.stdout + done.stderr


@pytest.mark.needs_process
def test_a_norm_from_outside_is_planned(outside: Outside) -> None:
    done = outside.bench("plan", "--defence", "none", *ATTACKS, *outside.options)
    assert done.returncode == 0, done.stderr
    assert "4 examples, l1, linf" in done.stdout
    assert outside.bench("list", "norms").stdout.splitlines()[-1] == "l1    The sum of all changes."


@pytest.mark.needs_process
def test_a_norm_from_outside_is_attacked_and_judged_in(outside: Outside) -> None:
    connection = sqlite3.connect(outside.folder / "results" / "bench.db")
    rows = connection.execute(
        """SELECT attack.name, shard.images_file, result.distance FROM result JOIN board ON board.id = result.board_id
        JOIN attack ON attack.id = result.attack_id JOIN shard ON shard.board_id = result.board_id
        AND shard.attack_id = result.attack_id AND shard.source_id = result.source_id
        WHERE board.norm = 'l1' AND board.epsilon = ? ORDER BY attack.name, example_idx""",
        (EPSILON,),
    ).fetchall()
    assert [name for name, _, _ in rows] == ["clean"] * 4 + ["pgd"] * 4
    clean = datasets.load("cifar10").examples(4).unit()
    made = np.load(outside.folder / "results" / "bench.images" / rows[-1][1])["images"]
    expected = np.abs(made.astype(float) - clean.astype(float)).sum(axis=(1, 2, 3))
    np.testing.assert_allclose([distance for name, _, distance in rows if name == "pgd"], expected, rtol=1e-12)
    assert (expected > 1).any()  # what was right at first is attacked
    assert (expected <= EPSILON + referee.TOLERANCE).all()
    assert outside.bench("verify").stdout.endswith("20 rows judged again, 0 problems\n")


@pytest.mark.needs_process
def test_an_engine_that_cannot_work_in_it_says_so_in_one_line(outside: Outside) -> None:
    reason = "Square cannot work in norm 'l1': its ball has no square_moves (bench.api.Ball)"
    cells = json.loads(outside.bench("results", "--format", "json").stdout)
    said = {(cell["norm"], cell["attack"]): (cell["status"], cell["error"]) for cell in cells}
    assert said["l1", "square"] == ("failed", reason)
    assert {said[norm, "pgd"] for norm in ("l1", "linf")} | {said["linf", "square"]} == {("done", None)}
    assert f"none l1 square@self: {reason}" in outside.said


@pytest.mark.needs_process
def test_a_norm_from_outside_has_its_label_on_pages_and_its_name_in_their_data(outside: Outside) -> None:
    site = outside.folder / "results" / "leaderboard"
    headings = re.findall(r'<h2 id="rank-(\w+)">(\S+) ', (site / "index.html").read_text())
    assert headings == [("linf", "L∞"), ("l2", "L2"), ("l1", "L1")]
    (page,) = (site / "defences").iterdir()
    text = page.read_text()
    assert text.index("L∞, ε = 8/255") < text.index("L1, ε = 6")
    for name in ("boards", "cells"):
        lines = (site / f"{name}.csv").read_text().splitlines()
        assert any(",l1,6.0," in line for line in lines[1:]), lines


@pytest.mark.needs_process
def test_pages_with_a_norm_from_outside_are_built_without_tensorflow(outside: Outside) -> None:
    code = (
        "import sys, atexit\n"
        f"sys.path.insert(0, {outside.package!r})\n"
        "atexit.register(lambda: print([m for m in ('tensorflow', 'keras', 'ray') if m in sys.modules], file=sys.stderr))\n"
        "from bench.cli import main; sys.argv = ['bench', 'leaderboard', '--out', 'light']; main()"
    )
    done = python(code, cwd=outside.folder)
    assert done.stderr.splitlines()[-1] == "[]"
    assert ">L1 <small>" in (outside.folder / "light" / "index.html").read_text()


@pytest.mark.needs_process
def test_a_stored_norm_that_is_not_installed_is_shown_as_such_and_never_judged(
    outside: Outside, tmp_path: Path
) -> None:
    assert outside.bench("leaderboard", "--out", "without", installed=False).returncode == 0
    assert '<h2 id="rank-l1">l1 (norm not installed here) ' in (outside.folder / "without" / "index.html").read_text()
    assert "l1" in outside.bench("results", installed=False).stdout
    verified = outside.bench("verify", installed=False)
    assert verified.returncode == 1
    assert "none, l1), pgd@self: examples 0 to 3: unknown norm 'l1': did you mean 'l2'?" in verified.stdout
    again = outside.bench("run", "--defence", "none", *ATTACKS, *outside.options, installed=False)
    assert (again.returncode, again.stderr) == (
        2,
        "error: unknown norm 'l1': did you mean 'l2'?; there are l2, linf\n",
    )
    assert outside.bench("export", "results.zip", installed=False).returncode == 0
    taken = outside.bench("import", "results.zip", "--db", str(tmp_path / "other.db"), installed=False)
    assert taken.returncode == 1
    assert "is in norm 'l1', which is not installed here" in taken.stderr
