"""A key that is given as found counts only if a stored search has found it, and is written nowhere."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bench.keys import PUBLISHED_KEY
from tests import searches
from tests.processes import bench

pytestmark = pytest.mark.needs_process

RUN = ("run", "--defence", "block-shuffle", "--preset", "smoke", "--examples", "2", "--norm", "linf")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guessed")
    (folder / "guess.key").write_text(f"lucky:{PUBLISHED_KEY}\n")
    (folder / "guess.key").chmod(0o600)
    done = bench(*RUN, "--attack", "pgd@nominal", cwd=folder, BENCH_HOME=str(folder / "home"))
    assert done.returncode == 0, done.stderr
    return folder


def guessed(world: Path) -> CompletedProcess[str]:
    return bench(*RUN, "--attack", "pgd@guessed-key", "--key-guess", "guess.key", cwd=world,
                 BENCH_HOME=str(world / "home"))  # fmt: skip


def sources(world: Path) -> dict[str, str]:
    return dict(
        sqlite3.connect(world / "results" / "bench.db").execute("SELECT name, params_json FROM source").fetchall()
    )


def test_only_what_a_search_within_the_threat_model_has_found_counts(world: Path) -> None:
    refused = guessed(world)
    assert refused.returncode == 2
    assert "no key search of block-shuffle within the threat model" in refused.stderr
    searches.store_found(world / "results" / "bench.db", "block-shuffle", PUBLISHED_KEY, inside=False)
    assert guessed(world).returncode == 2, "found on test images, which no attacker has"
    searches.store_found(world / "results" / "bench.db", "block-shuffle", PUBLISHED_KEY + 1)
    assert guessed(world).returncode == 2, "another key was found"
    assert "guessed-key" not in sources(world)


def test_a_key_that_was_found_is_stored_by_its_name(world: Path) -> None:
    with sqlite3.connect(world / "results" / "bench.db") as connection:
        connection.execute("DELETE FROM key_guess")
        connection.execute("DELETE FROM key_search")
    searches.store_found(world / "results" / "bench.db", "block-shuffle", PUBLISHED_KEY)
    done = guessed(world)
    assert done.returncode == 0, done.stderr
    cells = {c["source"]: c for c in json.loads(bench("results", "--format", "json", cwd=world).stdout)}
    assert cells["guessed-key"]["inside_threat_model"]
    made_of = sources(world)["guessed-key"]
    assert "lucky" in made_of
    assert str(PUBLISHED_KEY) not in made_of
    again = guessed(world)
    assert "1 there already" in again.stdout, "its name tells that it is the same key"
