"""`bench.evaluate`: the rows of `bench run`, and what a notebook makes of them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import bench
from bench import keys, python_arguments
from bench.evaluation.run import Summary
from bench.support import devices
from tests.processes import run
from tools.compare_rows import snapshot

ROOT = Path(__file__).parents[2]

# No `if __name__ == "__main__"`: that it is run once is part of the test. The request is that of `tests/honest.py`.
SCRIPT = """
import sys
import bench
assert "tensorflow" not in sys.modules
print("begun", file=open("begun.txt", "a"))
print(bench.evaluate(defence="block-shuffle", attacks="pgd@nominal", preset="smoke", examples=6, norms="linf", shard_size=3,
                     db="named/bench.db", quiet=True))
"""


def script(folder: Path, text: str) -> str:
    """Runs a script as a user would, in a folder; what it prints."""
    (folder / "script.py").write_text(text)
    done = run([sys.executable, "script.py"], cwd=folder, environment={"BENCH_HOME": str(folder / "home")})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def result(honest: Path) -> bench.Result:
    """The result of an evaluation that is stored already."""
    return bench.Result(str(honest / "results" / "bench.db"), Summary(board_ids=[1]))


@pytest.mark.needs_process
def test_the_rows_are_those_of_the_command_line(tmp_path: Path, honest: Path) -> None:
    said = script(tmp_path, SCRIPT)
    ours, theirs = snapshot(str(tmp_path / "named" / "bench.db")), snapshot(str(honest / "results" / "bench.db"))
    assert len(theirs["result"]) == 12
    assert ours == theirs
    assert (tmp_path / "begun.txt").read_text() == "begun\n", "a worker has run the script again"
    assert "cells: 1 done (0 resumed), 0 there already, 0 failed\nstored in named/bench.db" in said


@pytest.mark.needs_process
def test_the_docs_run_as_printed(tmp_path: Path) -> None:
    """But for the preset: the same models under smaller budgets, on fewer images."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    smoke = (ROOT / "bench" / "presets" / "smoke.toml").read_text()
    small = re.sub(r"^(examples|steps|queries|targets|restarts) = .*", r"\1 = 2", smoke, flags=re.MULTILINE)
    (tmp_path / "small.toml").write_text(small.replace('norms = ["linf", "l2"]', 'norms = ["linf"]'))
    ending = "import pathlib\nprint(pathlib.Path(result.db).exists(), result.db)\n"
    said = script(tmp_path, "\n".join(blocks[:2]).replace('"smoke"', '"small.toml"') + ending).splitlines()
    assert said[0].startswith("block-shuffle, linf ε = 0.031373, 2 examples of cifar10: clean ")
    assert re.fullmatch(r"\d+\.\d % \(\d+\.\d to \d+\.\d %\)", said[-2])
    there, _, store = said[-1].partition(" ")
    assert there == "True"
    assert not Path(store).parent.exists(), "a temporary store ends with its process"
    page = next((tmp_path / "folder" / "defences").glob("*.html")).read_text()
    assert "bench.evaluate(defence=&#39;block-shuffle&#39;, attacks=[&#39;pgd&#39;, &#39;pba&#39;]" in page


@pytest.mark.needs_process
def test_the_notebook_runs(tmp_path: Path) -> None:
    said = script(tmp_path, (ROOT / "examples" / "notebook.py").read_text().replace("examples=4", "examples=2"))
    assert "posterise, linf ε = 0.031373, 12 examples of images-" in said
    assert "one-step" not in said.partition("posterise")[0]
    assert (tmp_path / "notebook-pages" / "index.html").exists()


def test_a_result_has_the_numbers(result: bench.Result) -> None:
    known, cells, examples = result.best_known["linf"], result.cells(), result.examples()
    assert known.n == 6
    assert known.interval[0] <= known.share <= known.interval[1]
    assert list(cells["attack"]) == ["clean", "pgd"]
    under_attack = examples[examples["attack"] == "pgd"]
    assert list(examples["example"]) == [*range(6), *range(6)]
    assert 100 * under_attack["correct"].mean() == pytest.approx(cells["accuracy"][1], abs=0.01)
    assert known.share == examples.groupby("example")["correct"].all().mean()
    assert result.clean["linf"].share == examples[examples["attack"] == "clean"]["correct"].mean()
    assert list(result.doubts().columns) == ["defence", "norm", "attack", "source", "doubt", "meaning"]
    assert f"Best Known at most {known} under 1 cell (1 on reduced budgets); 1 of " in repr(result)
    assert "cells that preset smoke asks for" in repr(result)
    assert "<table" in result._repr_html_()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"defence": "block-shufle"}, "did you mean 'block-shuffle'"),
        ({"defence": "all"}, "one defence"),
        ({"attacks": []}, "attacks is empty"),
        ({"attacks": "pgd@self"}, "with outside_threat_model=True there are key-leaked"),
        ({"epsilon": 0.03}, "epsilon belongs to one norm"),
        ({"examples": 1000}, "has 500 test images here"),
        ({"examples": 2.5}, "examples is 2.5"),
        ({"workers": 0}, "workers is 0"),
        ({"executor": "cloud"}, "unknown executor 'cloud'"),
        ({"key": "secret"}, "key is no signed 64-bit integer"),
        ({"key": 2**63}, "key is no signed 64-bit integer"),
        ({"key": 1, "key_file": "my.key"}, "give one of them"),
        ({"weights": "gone.npz"}, "gone.npz does not exist"),
    ],
)
def test_bad_usage_is_one_line_and_writes_nothing(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    request = {
        "defence": "block-shuffle",
        "attacks": "pgd@nominal",
        "preset": "smoke",
        "db": tmp_path / "x" / "bench.db",
    }
    with pytest.raises(bench.UsageError, match=said) as error:
        bench.evaluate(**{**request, **changes})
    assert "\n" not in str(error.value)
    assert "--" not in str(error.value), "options are called as the arguments are"
    assert not (tmp_path / "x").exists() or "weights" in changes


def test_keys_keep_their_names_in_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(python_arguments, "_NAMED", {})

    def private_key(key: int | None) -> keys.PrivateKey:
        return python_arguments.key_place(key, None).read()

    assert private_key(5).id == private_key(5).id != private_key(6).id
    assert private_key(keys.PUBLISHED_KEY).id == keys.PUBLISHED_ID
    assert not python_arguments.key_place(None, None).secret
    monkeypatch.setenv("BENCH_KEY", "mine:7")
    assert private_key(None).reveal() == 7
    assert private_key(None).id == "mine", "the second call is made with the same key"
    monkeypatch.setenv("BENCH_KEY", "mine:7")
    assert private_key(5).reveal() == 5
    with pytest.raises(KeyError):
        os.environ["BENCH_KEY"]


def test_tensorflow_that_is_in_use_keeps_its_threads() -> None:
    tf = devices.tensorflow()
    assert tf.constant(1.0) + 1 == 2
    devices.configure(threads=(tf.config.threading.get_inter_op_parallelism_threads() or 0) + 1)


@pytest.mark.needs_process
def test_importing_bench_is_light() -> None:
    done = run(
        [sys.executable, "-c", "import sys, bench; print(sorted({'numpy', 'tensorflow', 'pandas'} & "
         "set(sys.modules)), 'evaluate' in dir(bench)); bench.nothing"]
    )  # fmt: skip
    assert done.stdout == "[] True\n"
    assert "module 'bench' has no attribute 'nothing'" in done.stderr


@pytest.mark.needs_process
def test_a_child_of_the_users_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import multiprocessing, bench\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.get_context('spawn').Process(target=print).start()\n"
        "else:\n"
        "    bench.evaluate('none', 'pgd', preset='smoke')\n"
    )
    done = run([sys.executable, "script.py"], cwd=tmp_path)
    assert "put the call under  if __name__ == '__main__':" in done.stderr
