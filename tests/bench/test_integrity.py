"""What `bench verify` finds: kinds of tampering, each named; and that nothing is found where nothing was done."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.evaluation.stored_board import Findings
from bench.evaluation.verify import verify
from bench.models import artifacts
from bench.store.database import open_database
from bench.support.fingerprint import of_file
from tests import vaults
from tests.conftest import bench

pytestmark = pytest.mark.needs_process


def sql(statement: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        connection = sqlite3.connect(folder / "results" / "bench.db")
        assert connection.execute(statement).rowcount > 0
        connection.commit()
        connection.close()

    return change


def first_image(folder: Path) -> Path:
    return sorted((folder / "results" / "bench.images").glob("*/*.npz"))[0]


def flip_a_bit(folder: Path) -> None:
    path = first_image(folder)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def other_image_with_its_digest(folder: Path) -> None:
    """Clean images in place of adversarial ones, and the digest to go with them: only a judge sees that."""
    path = first_image(folder)
    images = np.load(path)["images"]
    np.savez_compressed(path, images=np.full_like(images, 0.5))
    sql(f"UPDATE shard SET images_sha256 = '{of_file(path)}' WHERE images_file LIKE '%/{path.name}'")(folder)


def remove_an_image(folder: Path) -> None:
    first_image(folder).unlink()


def change_the_weights(folder: Path) -> None:
    """The shipped classifier, copied to the cache folder, with one number changed."""
    artifact = next(
        a for a in artifacts.all_artifacts() if a.spec["defence"]["name"] == "block-shuffle" and "what" not in a.spec
    )
    copy = folder / "home" / "artifacts" / artifact.path.name
    shutil.copytree(artifact.path, copy, dirs_exist_ok=True)
    arrays = dict(np.load(copy / "weights.npz"))
    name = sorted(arrays)[0]
    arrays[name] = arrays[name] + np.float16(0.25)
    np.savez(copy / "weights.npz", **arrays)


def change_the_recipe(folder: Path) -> None:
    artifact = next(
        a for a in artifacts.all_artifacts() if a.spec["defence"]["name"] == "block-shuffle" and "what" not in a.spec
    )
    copy = folder / "home" / "artifacts" / artifact.path.name
    shutil.copytree(artifact.path, copy, dirs_exist_ok=True)
    content = json.loads((copy / "artifact.json").read_text())
    content["spec"]["recipe"]["epochs"] += 1
    (copy / "artifact.json").write_text(json.dumps(content))


PGD = "attack_id = (SELECT id FROM attack WHERE name = 'pgd')"
TAMPERING: dict[str, tuple[Callable[[Path], None], str]] = {
    "a verdict turned round": (
        sql(f"UPDATE result SET correct = 1 - correct, pred = pred + 1 WHERE example_idx = 3 AND {PGD}"),
        "example 3: pred is stored as",
    ),
    "a margin": (sql(f"UPDATE result SET margin = margin + 1 WHERE example_idx = 2 AND {PGD}"), "example 2: margin is"),
    "a label": (sql(f"UPDATE result SET label = 1 - label WHERE example_idx = 1 AND {PGD}"), "example 1: label is"),
    "a count of gradients": (
        sql(f"UPDATE result SET gradients = 1 WHERE example_idx = 0 AND {PGD}"),
        "examples 0 to 2: a row was changed since it was written",
    ),
    "the version of the rows": (
        sql("UPDATE shard SET rows_version = 7"),
        "rows of version 7 are not known to this bench, which knows those up to",
    ),
    "a row removed": (sql(f"DELETE FROM result WHERE example_idx = 4 AND {PGD}"), "example 4: its row is missing"),
    "a row added": (
        sql(
            "INSERT INTO result SELECT board_id, 77, attack_id, source_id, correct, pred, label, margin, distance, "
            "source_success, source_margin, restart, target, part, gradients, queries, rounded FROM result "
            f"WHERE example_idx = 0 AND {PGD}"
        ),
        "example 77: its row belongs to no finished shard",
    ),
    "a cell's total": (sql(f"UPDATE cell SET n_correct = n_correct + 1 WHERE {PGD}"), "the cell says"),
    "an image's bit": (flip_a_bit, "was changed since it was written (sha256 differs)"),
    "an image and its digest": (other_image_with_its_digest, "left the linf ball"),
    "an image removed": (remove_an_image, "is missing"),
    "images of another cell": (
        sql("UPDATE shard SET images_file = '0000' || substr(images_file, 5) WHERE images_file <> ''"),
        "is of another cell",
    ),
    "the weights": (change_the_weights, "weights.npz is not what was saved"),
    "the weights' description": (change_the_recipe, "its description was changed"),
    "an attack's setting": (
        sql(
            "UPDATE attack SET params_json = replace(params_json, '\"steps\":20', '\"steps\":2000') WHERE name = 'pgd'"
        ),
        "attack 2 (pgd): its settings were changed",
    ),
    "a defence's setting": (
        sql("UPDATE defence SET params_json = replace(params_json, 'positions', 'values')"),
        "defence 1 (block-shuffle): its settings were changed",
    ),
    "a source's setting": (
        sql(
            "UPDATE source SET params_json = replace(params_json, '\"epochs\":6', '\"epochs\":600') WHERE name = 'nominal'"
        ),
        "source 2 (nominal): its settings were changed",
    ),
    "a board's epsilon": (sql("UPDATE board SET epsilon = epsilon / 2"), "board 1 (linf, 6 examples): its settings"),
    "the run's settings": (
        sql("UPDATE run SET preset = 'paper'"),
        "run 1 says preset smoke, the cell was made with paper",
    ),
    "the threat model": (
        sql(f"UPDATE cell SET inside_threat_model = 0 WHERE {PGD}"),
        "stored as outside the threat model",
    ),
    "the doubts": (
        sql(f"UPDATE cell SET flags_json = '{{\"zero-gradient\": 6}}' WHERE {PGD}"),
        "its doubts were changed",
    ),
}


def verified(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Findings:
    monkeypatch.setenv("BENCH_HOME", str(folder / "home"))
    database = open_database(str(folder / "results" / "bench.db"), create=False)
    try:
        return verify(database, folder / "results" / "bench.images", vaults.published())
    finally:
        database.dispose()


def test_nothing_is_found_where_nothing_was_done(honest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verified(honest, monkeypatch)
    assert (found.rows, found.without_images, found.problems, found.unjudged) == (12, 0, [], {})


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_found_and_named(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    shutil.copytree(honest, tmp_path / "copy")
    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "copy" / "home"))
    tamper, said = TAMPERING[kind]
    tamper(tmp_path / "copy")
    found = verified(tmp_path / "copy", monkeypatch)
    assert any(said in problem for problem in found.problems), found


def test_the_command_names_them_and_fails(honest: Path, tmp_path: Path) -> None:
    shutil.copytree(honest, tmp_path / "copy")
    TAMPERING["a verdict turned round"][0](tmp_path / "copy")
    done = bench("verify", cwd=tmp_path / "copy", BENCH_HOME=str(tmp_path / "home"))
    assert done.returncode == 1
    assert "board 1 (block-shuffle, linf), pgd@nominal: example 3: pred is stored as" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("error: ")


def test_another_key_judges_nothing_and_says_so(honest: Path, tmp_path: Path) -> None:
    assert bench("key", "new", "my.key", cwd=tmp_path).returncode == 0
    done = bench("verify", "--db", honest / "results" / "bench.db", "--key-file", "my.key", cwd=tmp_path)
    assert done.returncode == 1
    assert "it was judged with key 'published'" in done.stdout
