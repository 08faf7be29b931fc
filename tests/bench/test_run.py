"""Whole runs through the command line, on the shipped models and images."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import time
from pathlib import Path
from subprocess import DEVNULL

import numpy as np
import pytest

from bench.spec import PRESETS
from tests import packages, stores
from tests.processes import bench, bench_command, started

pytestmark = pytest.mark.needs_process

RUN = ("run", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--preset", "smoke", "--examples", "20")


def rows(folder: Path) -> list[tuple[object, ...]]:
    return stores.rows(str(folder / "results" / "bench.db"))


def adversarial(folder: Path) -> dict[str, np.ndarray]:
    """The kept images of every cell, in order."""
    cells = {}
    for cell in sorted((folder / "results" / "bench.images").iterdir()):
        cells[cell.name] = np.concatenate([np.load(file)["images"] for file in sorted(cell.glob("*.npz"))])
    return cells


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed, with the usual batches and shards."""
    folder = tmp_path_factory.mktemp("reference")
    done = bench(*RUN, cwd=folder, BENCH_HOME=str(folder / "home"))
    assert done.returncode == 0, done.stderr
    assert "Best Known" in done.stdout
    assert "2 done (0 resumed), 0 there already, 0 failed" in done.stdout
    return folder


def test_a_run_has_a_row_for_every_example_and_a_page(reference: Path) -> None:
    found = rows(reference)
    assert len(found) == 2 * 2 * 20  # two norms; clean and pgd@nominal
    assert {(norm, attack, source) for norm, attack, source, *_ in found} == {
        (norm, *cell) for norm in ("linf", "l2") for cell in (("clean", "clean"), ("pgd", "nominal"))
    }
    assert "block-shuffle" in (reference / "results" / "leaderboard" / "index.html").read_text()


def test_the_same_command_again_only_prints_the_table(reference: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    again = bench(*RUN, cwd=reference, BENCH_HOME=str(reference / "home"))
    assert again.returncode == 0
    assert "0 done (0 resumed), 2 there already" in again.stdout
    assert "Best Known" in again.stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # processor time, which a busy machine does not stretch
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 30


def test_batches_and_shards_do_not_change_a_result(reference: Path, tmp_path: Path) -> None:
    done = bench(*RUN, "--batch-size", "7", "--shard-size", "6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path) == rows(reference)
    expected, found = adversarial(reference), adversarial(tmp_path)
    assert expected.keys() == found.keys()
    for cell, images in expected.items():
        assert np.abs(images - found[cell]).max() <= 1e-5


def killed_at(folder: Path, shards: int, delay: float) -> None:
    """Starts the run, and kills it with SIGKILL a while after so many shards are stored."""
    with started(bench_command(*RUN, "--shard-size", 4), folder, stdout=DEVNULL, stderr=DEVNULL) as process:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            try:
                connection = sqlite3.connect(f"file:{folder}/results/bench.db?mode=ro", uri=True)
                stored = connection.execute("SELECT COUNT(*) FROM shard").fetchone()[0]
                connection.close()
            except sqlite3.OperationalError:
                stored = 0
            if stored >= shards:
                break
            time.sleep(0.02)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait(60)


def test_killed_and_started_again_it_ends_with_the_same_rows(reference: Path, tmp_path: Path) -> None:
    chance = random.Random(0)
    for shards in (0, 12, 15):  # before anything is stored, and between shards
        killed_at(tmp_path, shards, chance.uniform(0, 0.3))
    done = bench(*RUN, "--shard-size", "4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path) == rows(reference)
    assert bench("verify", cwd=tmp_path).stdout.endswith("80 rows judged again, 0 problems\n")


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    command = bench_command(*RUN, "--shard-size", 2, "--attack", "pgd[steps=200]@nominal")
    with started(command, tmp_path) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("results/bench.images/*/*.npz")) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors
    assert len(rows(tmp_path)) >= 2


def whole_site(folder: Path) -> str:
    """All pages of the leaderboard, one after the other."""
    return "".join(path.read_text() for path in sorted((folder / "results" / "leaderboard").rglob("*.html")))


EVIL = '''
import numpy as np
from bench.api import Attacked, Engine

def result(batch, images):
    n = len(batch.labels)
    zeros = np.zeros(n, np.int64)
    return Attacked(images, zeros == 1, zeros.astype(np.float32), zeros, zeros, zeros, zeros)

class Outside(Engine):
    """Leaves the ball."""
    def run(self, source, batch, report):
        return result(batch, np.clip(batch.images + np.float32(0.2), 0, 1))

class Range(Engine):
    """Leaves the range."""
    def run(self, source, batch, report):
        return result(batch, batch.images - np.float32(0.02) - batch.images.min())

class Nan(Engine):
    """Gives NaN."""
    def run(self, source, batch, report):
        return result(batch, batch.images * np.float32(np.nan))

class Shape(Engine):
    """Gives images of another shape."""
    def run(self, source, batch, report):
        return result(batch, batch.images[:, ::2])

class Crash(Engine):
    """Raises <b>an error</b>."""
    def run(self, source, batch, report):
        raise RuntimeError("<script>alert('boo')</script>")

class Die(Engine):
    """Takes its process down."""
    def run(self, source, batch, report):
        import os; os._exit(9)
'''


@pytest.fixture
def evil(tmp_path: Path) -> str:
    """A folder with a package of attacks that break the rules, for PYTHONPATH."""
    names = ("Outside", "Range", "Nan", "Shape", "Crash", "Die")
    return packages.attacks(tmp_path / "packages", "evil", EVIL, *names)


def test_attacks_that_break_the_rules_fail_alone(evil: str, tmp_path: Path) -> None:
    attacks = ("outside", "range", "nan", "shape", "crash", "die", "pgd")
    arguments = [argument for name in attacks for argument in ("--attack", name)]
    done = bench("run", "--defence", "none", *arguments, "--preset", "smoke", "--examples", "4", "--norm", "linf",
                 cwd=tmp_path, PYTHONPATH=evil)  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    cells = json.loads(bench("results", "--format", "json", cwd=tmp_path).stdout)
    said = {cell["attack"]: (cell["status"], cell["error"] or "") for cell in cells}
    assert said["pgd"][0] == "done"
    for name, reason in {
        "outside": "left the linf ball", "range": "outside [0,1]", "nan": "NaN", "shape": "not images of shape",
        "crash": "RuntimeError", "die": "process died 2 times (exit code 9)",
    }.items():  # fmt: skip
        assert said[name][0] == "failed", name
        assert reason in said[name][1]
    page = whole_site(tmp_path)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    connection = sqlite3.connect(tmp_path / "results" / "bench.db")
    assert connection.execute("SELECT COUNT(*) FROM result").fetchone() == (8,)  # clean and pgd


MASKED = '''
import tensorflow as tf
from bench.api import ModelSource, Strategy

class Masked(Strategy):
    """The classifier behind a coarse rounding, which hides its gradients."""
    def sources(self, defence):
        return ["masked"]
    def build(self, source, knowledge):
        return ModelSource(source, lambda x: knowledge.classifier(tf.round(x * 8) / 8, training=False), exact=True)
'''


def test_a_source_that_hides_its_gradients_is_doubted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    masked = packages.attacks(tmp_path / "packages", "masked", MASKED, "Masked")
    smoke = (PRESETS / "smoke.toml").read_text()
    checked = smoke.replace("[health]\nimages = 0\nattacked = 0\n", "[health]\nimages = 3\nattacked = 3\nqueries = 0\n")
    assert checked != smoke
    (tmp_path / "checked.toml").write_text(checked)
    attacks = [f"--attack=pgd[steps=50]@{source}" for source in ("masked", "self")]
    done = bench("run", "--defence", "none", *attacks, "--preset", "checked.toml", "--examples", "3", "--norm", "linf",
                 "--epsilon", "2/255", cwd=tmp_path, PYTHONPATH=masked)  # fmt: skip
    assert done.returncode == 0, done.stderr
    cells = json.loads(bench("results", "--format", "json", cwd=tmp_path).stdout)
    doubts = {cell["source"]: cell["doubts"] for cell in cells}
    assert {"zero-gradient", "survives-epsilon-one"} <= set(doubts["masked"])
    assert "epsilon 1.0" in doubts["masked"]["survives-epsilon-one"]
    assert doubts["self"] == {}
    page = whole_site(tmp_path)
    assert "even at epsilon 1.0" in page


def test_tampering_is_found_and_named(reference: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(reference / "results", tmp_path / "results")
    connection = sqlite3.connect(tmp_path / "results" / "bench.db")
    connection.execute(
        "UPDATE result SET correct = 1 - correct, pred = pred + 1 WHERE example_idx = 3 AND attack_id = 2 AND board_id = 1"
    )
    connection.commit()
    connection.close()
    image = sorted((tmp_path / "results" / "bench.images").glob("*/*.npz"))[0]
    image.write_bytes(image.read_bytes()[:-1] + b"x")
    done = bench("verify", cwd=tmp_path)
    assert done.returncode == 1
    assert "was changed since it was written" in done.stdout
    assert "the cell says" in done.stdout


def test_a_key_of_ones_own_is_nowhere_in_the_results(tmp_path: Path) -> None:
    """`values` and `positions` of this key differ from the published one's, so its classifier must be trained: refused."""
    assert bench("key", "new", "my.key", cwd=tmp_path).returncode == 0
    done = bench("run", "--defence", "block-shuffle", "--attack", "pgd", "--preset", "smoke", "--key-file", "my.key",
                 "--no-train", cwd=tmp_path)  # fmt: skip
    secret = (tmp_path / "my.key").read_text().split(":")[1].strip()
    assert done.returncode == 2
    assert "bench train --defence block-shuffle" in done.stderr
    assert secret not in done.stdout + done.stderr
