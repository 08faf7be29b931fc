"""A PyTorch classifier through the commands: run, verified, exported and imported, and its code run only where asked for."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sqlite3
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli import main
from tests import tiny

if importlib.util.find_spec("torch") is None and not os.environ.get("CI"):
    pytest.skip("torch is not installed: pip install 'bench-keyed-defences[torch]'", allow_module_level=True)
import torch

from tests import torch_nets

pytestmark = pytest.mark.needs_process
MODULE = """
from pathlib import Path
from tests.torch_nets import Tiny

def net(shape, classes):
    Path("called").touch()
    return Tiny(shape, classes)
"""
CLASSIFIER = ("--classifier", "torch:of_a_user:net", "--weights", "mine.pt")


def call(folder: Path, *words: str, home: str = "home") -> Result:
    """`bench …` in this process, which has TensorFlow already; its workers are new ones all the same."""
    with contextlib.chdir(folder):
        return CliRunner(env={"BENCH_HOME": str(folder / home)}).invoke(main, words)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a user's module, its weights, a few images and a small preset."""
    folder = tmp_path_factory.mktemp("world")
    tiny.make(folder)
    (folder / "of_a_user.py").write_text(MODULE)
    torch.manual_seed(0)
    torch.save(torch_nets.Tiny().state_dict(), folder / "mine.pt")
    return folder


def test_attackers_train_against_it(world: Path) -> None:
    options = ("--preset", "tiny.toml", "--dataset", "mine.npz", "--defence", "block-shuffle", *CLASSIFIER)
    source = ("--attack", "pgd@user:mine", "--source", "torch:of_a_user:net@mine.pt")
    attacks = ("--attack", "pgd@bypass", "--attack", "pgd@surrogate:1", *source)
    done = call(world, "run", *options, *attacks, "--db", "tiny.db")
    assert done.exit_code == 0, done.output
    with contextlib.closing(sqlite3.connect(world / "tiny.db")) as stored:
        cells = stored.execute("SELECT source.name, n_done FROM cell JOIN source ON source.id = source_id")
        assert sorted(cells) == [("bypass", 4), ("clean", 4), ("surrogate:1", 4), ("user:mine", 4)]
    kept = [json.loads(path.read_text()) for path in (world / "home" / "artifacts").glob("*/artifact.json")]
    networks = [one["spec"]["recipe"]["network"]["settings"] for one in kept if "network" in one["spec"]["recipe"]]
    own = {"factory": "of_a_user:net", "channels": "first", "output": "logits"}
    assert networks == [own, own], "the classifier, and a surrogate by the same factory"


def test_it_is_attacked_verified_exported_and_imported(world: Path) -> None:
    options = ("--preset", "smoke", "--examples", "3", "--norm", "linf", "--defence", "block-shuffle", *CLASSIFIER)
    done = call(world, "run", *options, "--attack", "pgd[steps=2]@nominal")
    assert done.exit_code == 0, done.output
    verified = call(world, "verify")
    assert verified.exit_code == 0, verified.output
    assert "6 rows judged again, 0 problems" in verified.output
    assert call(world, "export", "all.zip", "--with-weights").exit_code == 0

    (world / "called").unlink()
    unasked = call(world, "import", "all.zip", "--db", "unasked.db", home="theirs")
    assert unasked.exit_code == 0, unasked.output
    assert "code that is run only if you name it: --factory of_a_user:net" in unasked.output
    again = call(world, "verify", "--db", "unasked.db", home="theirs")
    assert again.exit_code == 1
    assert "code that is run only if you name it: --factory of_a_user:net" in again.output
    assert not (world / "called").exists(), "what an archive names is not run"

    allowed = call(world, "import", "all.zip", "--db", "asked.db", "--factory", "of_a_user:net", home="others")
    assert allowed.exit_code == 0, allowed.output
    assert "not judged" not in allowed.output
    assert "2 cells and 6 rows taken over" in allowed.output
    again = call(world, "verify", "--db", "asked.db", "--factory", "of_a_user:net", home="others")
    assert "6 rows judged again, 0 problems" in again.output
    (world / "of_a_user.py").rename(world / "elsewhere.py")
    importlib.invalidate_caches()
    sys.modules.pop("of_a_user")
    without = call(world, "import", "all.zip", "--db", "without.db", "--factory", "of_a_user:net", home="new")
    (world / "elsewhere.py").rename(world / "of_a_user.py")
    assert without.exit_code == 0, without.output
    assert "not judged here: " in without.output
    assert "there is no module of_a_user (of of_a_user:net)" in without.output


def test_what_is_wrong_ends_with_2_and_nothing_is_written(world: Path) -> None:
    options = ("run", "--preset", "tiny.toml", "--dataset", "mine.npz", "--defence", "block-shuffle", "--db", "none.db")
    for words, said in (
        (("--classifier", "torch:of_a_user:nut", "--weights", "mine.pt"), "has no nut: did you mean 'net'"),
        (("--classifier", "torch:of_a_user:net[channels=last]", "--weights", "mine.pt"), "there is channels=first too"),
        (("--classifier", "torch:of_a_user:net", "--weights", "mine.npz"), "mine.npz is no state_dict"),
        ((*CLASSIFIER, "--probabilities"), "leave --probabilities out"),
    ):
        done = call(world, *options, *words, "--attack", "pgd@bypass")
        assert done.exit_code == 2
        assert said in done.output
        assert "Traceback" not in done.output
    assert not (world / "none.db").exists()
