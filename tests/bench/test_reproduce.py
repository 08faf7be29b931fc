"""`bench reproduce` over every name in a tiny world: its files, its numbers as the store has them, and what is refused."""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import re
import sqlite3
import subprocess
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from bench import registry, spec
from bench.api import UsageError
from bench.attacker_keys import PAPER_KEYS, attacker_key
from bench.data import datasets
from bench.keys import PUBLISHED_ID
from bench.models import artifacts, catalogue, weights
from bench.reproduction import contents
from bench.reproduction.differences import differences
from bench.reproduction.sizes import sizes
from leaderboard import paper
from tests import tiny
from tests.conftest import bench

TOML = """
[defences.pca-full]
components = 16

[gallery]
map_points = 3

[reproduce]
engines = ["square"]
transfer = ["nominal"]
surrogates = 2
reconstructions = 1
guesses = 3
frequencies = [5]
layers = [3]
representation_layers = [1]
epochs = [1, 2]
sweep_source = "nominal"
"""
"""One engine, and one sweep of two points: the others have the setting that LINAC has anyway, and share its board."""

OPTIONS = ("--preset", "tiny.toml", "--dataset", "mine.npz", "--examples", "12")
UNTRAINED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("none", ()), ("block-shuffle", ()), ("jpeg-23", ()), ("jpeg-10", ()), ("pca-full", ()), ("pca-block", ()),
    ("none", ("at-l2",)), ("linac", ("surrogate:linac", 1)), ("linac", ("surrogate:linac", 2)),
    ("linac", ("reconstruction:linac", 1)),
)  # fmt: skip
"""Classifiers that are put there with random weights, by defence, recipe and attacker key: what is counted is counted all
the same. LINAC's own, the other point of the sweep, and the bypasses are trained by the command."""


def reproduce(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return bench("reproduce", *arguments, cwd=cwd, timeout=800, BENCH_HOME=str(cwd / "home"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything was reproduced, at a size that means nothing."""
    folder = tmp_path_factory.mktemp("paper")
    tiny.make(folder)
    with (folder / "tiny.toml").open("a") as preset:
        preset.write(TOML)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_HOME", str(folder / "home"))
        put_untrained(spec.resolve("tiny.toml", dataset="mine.npz"))
    done = reproduce("all", *OPTIONS, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "paper.html" in done.stdout
    return folder


def put_untrained(run: spec.Spec) -> None:
    import keras

    images = datasets.load(run.dataset)
    linac = registry.defence("linac", run.defences["linac"])
    defended = catalogue.spec_for(run, images, "linac", linac, PUBLISHED_ID).fingerprint
    for number, (name, role) in enumerate(UNTRAINED):
        defence = registry.defence(name, run.defences.get(name, {}))
        key = PUBLISHED_ID if defence.keyed else None
        if len(role) == 2:
            key = f"attacker:{attacker_key(role[1])}"
        if "reconstruction:linac" in role:
            defence = registry.defence(name, defence.reconstruction() or {})
        wanted = catalogue.spec_for(run, images, name, defence, key, role[:1], defended)
        keras.utils.set_random_seed(number)
        arrays = weights.arrays_of(wanted.build(), defence.fit(images.training().unit()))
        record = {"clean_accuracy": 0.5, "test_images": len(images.test), "seconds": 0}
        artifacts.save(wanted.fingerprint, wanted.as_json(), arrays, record)


def site(world: Path) -> Path:
    return world / "results" / "leaderboard"


def rows(world: Path, name: str) -> list[dict[str, str]]:
    with (site(world) / "paper" / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@functools.cache
def results(world: Path, what: str) -> list[dict[str, Any]]:
    done = bench("results", "--format", "json", "--what", what, cwd=world)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def main_board(world: Path, defence: str) -> dict[str, Any]:
    """The board of a defence with the preset's settings; of several, the one with the most cells."""
    return max((b for b in results(world, "boards") if b["defence"] == defence), key=lambda b: b["cells"])


@pytest.mark.parametrize("name", contents.NAMES)
@pytest.mark.needs_process
def test_every_name_has_its_files_and_is_on_the_page_of_the_paper(world: Path, name: str) -> None:
    folder = site(world) / "paper"
    page = (folder / f"{name}.html").read_text()
    assert paper.label(name) in page
    assert "Smaller than the paper" in page
    assert len((folder / f"{name}.csv").read_text().splitlines()) > 1
    record = json.loads((folder / f"{name}.json").read_text())
    assert (record["preset"], record["complete"], record["failed"]) == ("tiny", True, [])
    assert (["test images", "12", "10,000"] in record["differences"]) == (name in contents.OF_BOARDS)
    if name.startswith("table"):
        table = (folder / f"{name}.tex").read_text()
        assert table.count("{tabular}") == 2
        columns = {line.count(" & ") for line in table.splitlines() if line.endswith(r"\\")}
        assert len(columns) == 1
    else:
        drawing = xml.etree.ElementTree.parse(folder / f"{name}.svg").getroot()
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        assert "http" not in (folder / f"{name}.svg").read_text().replace("http://www.w3.org/2000/svg", "")
    listed = (site(world) / "paper.html").read_text()
    assert f'href="paper/{name}.html"' in listed


@pytest.mark.needs_process
def test_cells_are_those_of_bench_results(world: Path) -> None:
    sources = {"table7": {"nominal": "nominal", "Bypass (PBA)": "bypass"}, "table1": {"nominal": "nominal"}}
    sources |= {"table5": {"key 1": "surrogate:1", "key 2": "surrogate:2"}, "table6": {"key 1": "reconstruction:1"}}
    sources |= {"table2": {"Bypass (PBA)": "bypass"}}
    cells, compared = results(world, "cells"), 0
    for name, columns in sources.items():
        board = main_board(world, "block-shuffle" if name == "table7" else "linac")["board"]
        for row in rows(world, name):
            if row["column"] in columns and row["attack"] == "square":
                (cell,) = (
                    c
                    for c in cells
                    if (c["board"], c["attack"], c["source"]) == (board, row["attack"], columns[row["column"]])
                )
                assert float(row["accuracy"]) == cell["accuracy"], (name, row)
                assert (int(row["correct"]), int(row["examples"])) == (cell["correct"], 12)
                compared += 1
    assert compared == 7


@pytest.mark.needs_process
def test_table_3_has_every_defence_with_its_clean_accuracy(world: Path) -> None:
    clean = {row["column"]: row for row in rows(world, "table3") if row["attack"] == "clean"}
    assert len(clean) == 6
    for defence, row in clean.items():
        assert float(row["accuracy"]) == main_board(world, defence)["clean"]
    assert clean["linac"]["paper"] == "93.08"


@pytest.mark.needs_process
def test_best_known_is_right_without_a_perturbation_and_under_every_attack_of_its_column(world: Path) -> None:
    """LINAC's board also has the bypass, of Tables 2 and 3, and PGD, of the sweeps: they are no part of Table 1."""
    connection = sqlite3.connect(world / "results" / "bench.db")
    board = main_board(world, "linac")["board"]
    count = """SELECT COUNT(*) FROM (SELECT example_idx FROM result JOIN source ON source.id = result.source_id
        JOIN attack ON attack.id = result.attack_id WHERE board_id = ? AND source.name != 'bypass'
        AND attack.name != 'pgd' GROUP BY example_idx HAVING MIN(correct) = 1)"""
    (right,) = connection.execute(count, (board,)).fetchone()
    (known,) = (r for r in rows(world, "table1") if (r["attack"], r["column"]) == ("best_known", "all sources"))
    assert int(known["correct"]) == right
    assert known["paper"] == "37.04"
    shuffled = next(r for r in rows(world, "table7") if (r["attack"], r["column"]) == ("best_known", "all sources"))
    assert float(shuffled["accuracy"]) == main_board(world, "block-shuffle")["best_known"]


@pytest.mark.parametrize("name", contents.SWEEPS)
@pytest.mark.needs_process
def test_a_sweep_has_a_board_for_every_value(world: Path, name: str) -> None:
    setting = contents.SWEEPS[name].setting
    base = main_board(world, "linac")["settings"]
    boards = {
        b["settings"][setting]: b
        for b in results(world, "boards")
        if b["defence"] == "linac" and {**b["settings"], setting: base[setting]} == base
    }
    ours = [row for row in rows(world, name) if row["accuracy"]]
    assert len(ours) == (4 if name == "figure9" else 2)
    for row in ours:
        board = boards[int(row["value"])]
        if row["attack"] == "clean":
            assert float(row["accuracy"]) == board["clean"]
        else:
            (cell,) = (
                c
                for c in results(world, "cells")
                if (c["board"], c["attack"], c["source"]) == (board["board"], "pgd", "nominal")
            )
            assert float(row["accuracy"]) == cell["accuracy"]
    assert len([row for row in rows(world, name) if row["paper"]]) >= 8


@pytest.mark.needs_process
def test_the_key_search_is_the_papers(world: Path) -> None:
    connection = sqlite3.connect(world / "results" / "bench.db")
    guesses = connection.execute("SELECT guess, correct, images FROM key_guess ORDER BY correct DESC, guess").fetchall()
    assert len(guesses) == 3
    table = rows(world, "table4")
    assert [float(row["accuracy"]) for row in table[:3]] == [round(100 * c / n, 2) for _, c, n in guesses]
    assert [row["paper_key"] for row in table] == [str(key) for key in PAPER_KEYS]
    assert tuple(key for key, _ in paper.BEST_KEYS) == PAPER_KEYS
    assert sum(int(row["keys"]) for row in rows(world, "figure2")) == 3


@pytest.mark.needs_process
def test_figure_3_ends_where_tables_5_and_6_do(world: Path) -> None:
    curve = {(r["sources"], int(float(r["number"]))): r for r in rows(world, "figure3")}
    (both,) = (r for r in rows(world, "table5") if (r["attack"], r["column"]) == ("best_known", "all keys"))
    assert float(curve["surrogate", 2]["best_known"]) == float(both["accuracy"])
    assert curve["surrogate", 10]["paper"] == both["paper"] == "75.64"
    assert curve["surrogate", 10]["best_known"] == ""


@pytest.mark.needs_process
def test_given_again_it_runs_nothing_and_a_new_site_keeps_the_pages(world: Path) -> None:
    again = reproduce("table7", *OPTIONS, "--no-train", cwd=world)
    assert again.returncode == 0, again.stderr
    assert "cells: 0 done (0 resumed), 2 there already, 0 failed" in again.stdout
    assert "training" not in again.stderr
    built = bench("leaderboard", cwd=world)
    assert built.returncode == 0, built.stderr
    for name in contents.NAMES:
        assert (site(world) / "paper" / f"{name}.html").exists()
        assert f'href="paper/{name}.html"' in (site(world) / "paper.html").read_text()


@pytest.mark.needs_process
def test_what_may_not_be_trained_is_refused_with_the_command_and_the_rest_is_written(tmp_path: Path) -> None:
    options = tiny.make(tmp_path)
    done = reproduce("figure6", *options, "--no-train", cwd=tmp_path)
    assert done.returncode == 1
    assert "'bench reproduce figure6 --preset tiny.toml'" in done.stderr
    page = (tmp_path / "results" / "leaderboard" / "paper" / "figure6.html").read_text()
    assert "Partial" in page
    assert "is not trained yet" in page


@pytest.mark.needs_process
def test_an_unknown_name_is_a_usage_error(tmp_path: Path) -> None:
    done = reproduce("tabel3", cwd=tmp_path)
    assert done.returncode == 2
    assert "the paper has no 'tabel3' to reproduce: did you mean 'table3'" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("surogates = 1", "[reproduce] has no field 'surogates': did you mean 'surrogates'"),
        ("epochs = 5", "reproduce.epochs is 5; it must be a list"),
        ("epochs = []", "reproduce.epochs is []; give at least one"),
        ('engines = ["fab"]', "choose from aa, mt, pgd, square"),
        ("guesses = -1", "reproduce.guesses is -1; give whole numbers from 0 up"),
    ],
)
def test_what_is_wrong_with_a_preset_is_named(tmp_path: Path, line: str, said: str) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text(f"{tiny.TOML}\n[reproduce]\n{line}\n")
    with pytest.raises(UsageError, match=re.escape(said)):
        sizes(spec.resolve(str(preset)))


@pytest.mark.parametrize("name", contents.NAMES)
def test_the_preset_paper_is_the_papers_protocol(name: str) -> None:
    assert differences(name, spec.resolve("paper")) == []
    smaller = {what for what, _, _ in differences(name, spec.resolve("laptop"))}
    assert ("training: depth" in smaller) == (name not in contents.UNCLASSIFIED)
    assert ("test images" in smaller) == (name in contents.OF_BOARDS)
    assert ("linac: width" in smaller) == (name not in ("table7", "figure5"))
