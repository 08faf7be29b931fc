"""Results as one file: packed, taken over and judged again; and whatever is wrong with a file is refused, untouched."""

from __future__ import annotations

import io
import json
import pickle
import random
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import BenchError
from bench.evaluation.verify import verify
from bench.exchange import examining, exporting, importing
from bench.exchange.archive import Archive
from bench.models import artifacts
from bench.store import queries
from bench.store.database import open_database
from bench.vault.here import VaultHere
from tests import vaults
from tests.archives import Members, better_rows, left_behind, members, named, npy, npz, of_network, tables, write
from tests.conftest import bench
from tests.progress import Recorded

pytestmark = pytest.mark.needs_process


def stored(path: Path) -> list[Any]:
    connection = sqlite3.connect(path)
    query = """SELECT attack.name, source.name, result.example_idx, correct, pred, label, margin, distance, source_success,
        source_margin, restart, target, part, result.gradients, result.queries FROM result
        JOIN attack ON attack.id = result.attack_id JOIN source ON source.id = result.source_id ORDER BY 1, 2, 3"""
    return connection.execute(query).fetchall()


def taken(path: Path, folder: Path, vault: VaultHere | None = None) -> importing.Imported:
    db = folder / "theirs" / "bench.db"
    return importing.import_(path, str(db), db.with_suffix(".images"), vault or vaults.published())


def board(folder: Path) -> queries.Board:
    (found,) = queries.boards(open_database(str(folder / "theirs" / "bench.db"), create=False))
    return found


def test_a_run_is_taken_over_and_judged_again(honest: Path, packed: Path, tmp_path: Path) -> None:
    done = taken(packed, tmp_path)
    assert (done.cells, done.rows, done.there_already, done.unjudged) == (2, 12, 0, {})
    assert stored(tmp_path / "theirs" / "bench.db") == stored(honest / "results" / "bench.db")
    assert board(tmp_path).best_known is not None
    assert {cell.imported for cell in board(tmp_path).cells} == {"judged"}
    again = taken(packed, tmp_path)
    assert (again.cells, again.rows, again.there_already) == (0, 0, 12)
    checked = bench("verify", "--db", tmp_path / "theirs" / "bench.db", cwd=tmp_path)
    assert checked.stdout.endswith("12 rows judged again, 0 problems\n"), checked.stdout


def test_without_the_key_it_counts_for_nothing_until_somebody_judges_it(packed: Path, tmp_path: Path) -> None:
    done = taken(packed, tmp_path, vaults.with_key("other", 5))
    assert done.rows == 12
    assert "it was judged with key 'published', and this is key 'other'" in done.unjudged[1]
    found = board(tmp_path)
    assert (found.best_known, {cell.imported for cell in found.cells}) == (None, {"unjudged"})
    shown = bench("results", "--db", tmp_path / "theirs" / "bench.db", cwd=tmp_path)
    assert "1 of 1 cells were not judged here" in shown.stdout
    assert taken(packed, tmp_path).rows == 12
    assert board(tmp_path).best_known is not None


def test_each_step_shows_its_progress_to_the_end(honest: Path, packed: Path, tmp_path: Path) -> None:
    images, database = (
        honest / "results" / "bench.images",
        open_database(str(honest / "results/bench.db"), create=False),
    )
    for key in (vaults.published(), vaults.with_key("other", 5)):
        shown = Recorded()
        verify(database, images, key, shown.track)
        assert shown.done() == {"verifying": 12}, "also of what cannot be judged"
    shown = Recorded()
    exporting.export(database, images, tmp_path / "out.zip", False, shown.track)
    assert shown.done() == {"packing rows": 12, f"writing {tmp_path / 'out.zip'}": 2}
    shown = Recorded()
    importing.import_(packed, str(tmp_path / "in.db"), tmp_path / "in.images", vaults.published(), shown.track)
    assert shown.done() == {"verifying": 12, "taking over results": 12}


@pytest.fixture
def no_zoo(tmp_path: Path, packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shipped: what judges is what came along."""
    monkeypatch.setattr(artifacts, "ZOO", tmp_path / "no-zoo")


def described(packed: Path) -> dict[str, Any]:
    content = members(packed)
    return json.loads(content[next(name for name in content if name.endswith("artifact.json"))])


def test_weights_that_came_along_judge_and_are_used_by_no_run(no_zoo: None, packed: Path, tmp_path: Path) -> None:
    done, theirs = taken(packed, tmp_path), described(packed)
    assert (done.rows, done.unjudged) == (12, {})
    assert artifacts.find(theirs["fingerprint"]) is None
    assert artifacts.with_weights(theirs["record"]["weights_sha256"]) is not None
    database = open_database(str(tmp_path / "theirs" / "bench.db"), create=False)
    found = verify(database, tmp_path / "theirs" / "bench.images", vaults.published())
    assert (found.rows, found.problems, found.unjudged) == (12, [], {})


def test_ones_own_classifier_of_the_same_recipe_is_no_obstacle(no_zoo: None, packed: Path, tmp_path: Path) -> None:
    """Trained on two machines, the same recipe gives other weights."""
    theirs = described(packed)
    own = artifacts.save(theirs["fingerprint"], theirs["spec"], {"weight:x": np.ones(3, np.float32)}, {})
    assert taken(packed, tmp_path).unjudged == {}
    assert artifacts.find(theirs["fingerprint"]) == own


class Bomb:
    """What a pickle could do to whoever reads it."""

    def __reduce__(self) -> Any:
        return (open, ("executed", "w"))


def replaced(start: str, data: Callable[[], bytes]) -> Callable[[Members], Members]:
    return lambda content: {**content, named(content, start): data()}


def added(name: str) -> Callable[[Members], Members]:
    return lambda content: {**content, name: b"x"}


def more_weights(content: Members) -> Members:
    """The whole of another classifier, as it is shipped: a run might take it for its own."""
    other = next(a for a in artifacts.all_artifacts() if a.spec["defence"]["name"] == "none")
    folder = f"weights/{other.weights_sha256[:16]}"
    return {**content, **{f"{folder}/{n}": (other.path / n).read_bytes() for n in ("weights.npz", "artifact.json")}}


def odd_description(content: Members) -> Members:
    name = next(name for name in content if name.endswith("artifact.json"))
    return {**content, name: json.dumps({**json.loads(content[name]), "record": []}).encode()}


def pickled_arrays() -> bytes:
    made = io.BytesIO()
    np.savez(made, images=np.array([Bomb()], dtype=object))
    return made.getvalue()


OFFERS: dict[str, tuple[Callable[[Members], Members], str]] = {
    "a way out of the folder": (added("images/../../../evil.npz"), "which no export makes"),
    "an absolute path": (added("/tmp/evil.npz"), "which no export makes"),
    "a path of Windows": (added("images\\..\\evil.npz"), "which no export makes"),
    "a program": (added("setup.py"), "which no export makes"),
    "a pickle instead of weights": (replaced("weights/", lambda: pickle.dumps(Bomb())), "is no file of arrays"),
    "a pickle inside weights": (replaced("weights/", pickled_arrays), "holds objects, not numbers"),
    "a pickle instead of images": (replaced("images/", pickled_arrays), "holds objects, not numbers"),
    "a pickle instead of rows": (replaced("rows/", lambda: pickle.dumps({"a": Bomb()})), "is no file of arrays"),
    "a huge shape": (
        replaced("images/", lambda: npz(images=npy("(1000000000, 32, 32, 3)", "<f4", b"x" * 64))),
        "declares the shape",
    ),
    "a shape that overflows": (
        replaced("images/", lambda: npz(images=npy("(4611686018427387904, 4, 4, 4)", "<f4", b""))),
        "declares the shape",
    ),
    "a negative shape": (replaced("images/", lambda: npz(images=npy("(-3, 32, 32, 3)", "<f4", b""))), "of shape"),
    "a bomb of zeros": (replaced("images/", lambda: b"\0" * 2**28), "would unpack to"),
    "a bomb inside": (
        replaced("images/", lambda: npz(images=npy(f"({2**19}, 32, 32, 1)", "<f4", b"\0" * 2**31))),
        "would unpack to",
    ),
    "images of another size": (
        replaced("images/", lambda: npz(images=npy("(3, 1, 1, 3)", "<f4", b"\0" * 36))), "sha256 differs",
    ),
    "weights of another classifier": (more_weights, "is of no defence in it"),
    "weights that are not described": (odd_description, "does not describe an artifact"),
    "weights of a huge network": (of_network(depth=10**6 + 6), "depth is above 200"),
    "weights of a network that cannot be": (of_network(depth=11), "a wide residual network has 6·n + 4 layers"),
    "weights of a network of another kind": (of_network(width="2; import os"), "width is '2; import os'"),
    "weights of two networks": (of_network(network="wide-resnet"), "depth and width and network are given"),
    "rows that are missing": (
        lambda content: {n: c for n, c in content.items() if n != "rows/1.npz"}, "rows/1.npz is missing",
    ),
    "a number that is text": (
        tables(lambda t: t["board"][0].update(epsilon="8/255; DROP TABLE result")), "epsilon is not of type float",
    ),
    "a column more": (tables(lambda t: t["cell"][0].update(more=1)), "does not have the table's columns"),
    "a text without an end": (tables(lambda t: t["defence"][0].update(name="x" * 10**6)), "name is too long"),
    "shards that overlap": (tables(lambda t: t["shard"].append(t["shard"][-1])), "overlap"),
    "examples without number": (tables(lambda t: t["board"][0].update(n_examples=10**12)), "examples"),
    "another epsilon": (tables(lambda t: t["board"][0].update(epsilon=0.05)), "its settings were changed"),
    "another attack": (
        tables(lambda t: t["attack"][1].update(params_json=t["attack"][1]["params_json"].replace("20", "2000"))),
        "its settings were changed",
    ),
    "better results": (better_rows, "is stored as"),
    "JSON without a bottom": (lambda content: {**content, "manifest.json": b"[" * 10**5}, "is no JSON"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OFFERS)
def test_what_is_wrong_is_refused_in_one_line(
    packed: Path, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, said = OFFERS[kind]
    monkeypatch.chdir(tmp_path)
    changed = change(members(packed))
    if kind == "JSON without a bottom":
        with zipfile.ZipFile("offered.zip", "w") as file:
            for name, data in changed.items():
                file.writestr(name, data)
    else:
        write(tmp_path / "offered.zip", changed)
    with pytest.raises(BenchError) as refusal:
        taken(tmp_path / "offered.zip", tmp_path)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert left_behind(tmp_path) == [], "nothing written, nothing executed"
    assert left_behind(own_home) == []


def test_changed_members_are_named(packed: Path, tmp_path: Path) -> None:
    content = members(packed)
    name = named(content, "images/")
    manifest = json.loads(content["manifest.json"])
    write(tmp_path / "offered.zip", {**content, name: content[name] + b"x"}, files=manifest["files"])
    with pytest.raises(BenchError, match=f"{name} was changed"):
        taken(tmp_path / "offered.zip", tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_cut_short_or_with_flipped_bits_it_is_refused(packed: Path, tmp_path: Path, seed: int) -> None:
    """A flip that changes nothing that is read (a member's date, say) may pass: then what was read is the same."""
    chance, whole, passed = random.Random(seed), packed.read_bytes(), 0
    said: list[str] = []
    with Archive(packed) as archive, tempfile.TemporaryDirectory() as folder:
        honest = examining.examine(archive, Path(folder))
    for turn in range(40):
        content = bytearray(whole)
        if turn % 4 == 0:
            del content[chance.randrange(len(content)) :]
        else:
            for _ in range(turn % 4):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (tmp_path / "offered.zip").write_bytes(content)
        try:
            with Archive(tmp_path / "offered.zip") as archive, tempfile.TemporaryDirectory() as folder:
                assert examining.examine(archive, Path(folder)) == honest
            passed += 1
        except BenchError as refusal:
            said.append(str(refusal))
    assert passed < 20
    assert not any("\n" in text for text in said)


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"PK\x05\x06" + b"\0" * 18])
def test_other_files_are_refused_by_the_command(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "offered.zip").write_bytes(content)
    done = bench("import", "offered.zip", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: offered.zip ")
    assert done.stderr.count("\n") == 1
    assert left_behind(tmp_path) == []


def test_the_command_says_what_was_taken_over(packed: Path, tmp_path: Path) -> None:
    done = bench("import", packed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 cells and 12 rows taken over, 0 rows were there already\n"
