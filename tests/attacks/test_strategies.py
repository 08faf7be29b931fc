"""Every strategy's sources, trained and attacked in a tiny world through the command line as a user would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from bench import registry
from bench.testing import check_strategy
from tests import searches, tiny
from tests.conftest import bench

KEY = 987654321987654321


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strategies")
    tiny.make(folder)
    return folder


def run(world: Path, *options: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Runs attacks; the cells by attack and source."""
    done = bench("run", "--preset", "tiny.toml", "--dataset", "mine.npz", *options, cwd=world,
                 BENCH_HOME=str(world / "home"), timeout=900)  # fmt: skip
    assert done.returncode == 0, done.stderr
    cells = json.loads(bench("results", "--format", "json", cwd=world).stdout)
    return {(cell["attack"], cell["source"]): cell for cell in cells}


MORE = {"transfer": "transfer[surrogates=1,warm=1]", "bpda": "bpda[reconstructions=1]"}
STRATEGIES = [name for name in registry.strategy_classes() if registry.entry("attacks", name).built_in]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_keeps_the_contract(name: str) -> None:
    further = ("key-leaked-bypass",) if name == "key-leaked" else ()
    check_strategy(MORE.get(name, name), sources=further)


@pytest.mark.needs_process
def test_everything_against_block_shuffle(world: Path) -> None:
    model = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.save(world / "dense.keras")
    (world / "guess.key").write_text(f"guess:{KEY}\n")
    (world / "guess.key").chmod(0o600)
    run(world, "--defence", "block-shuffle", "--attack", "pgd@nominal")
    searches.store_found(world / "results" / "bench.db", "block-shuffle", KEY)
    cells = run(
        world, "--defence", "block-shuffle", "--attack", "pgd@surrogate:1", "--attack", "boosted@nominal",
        "--attack", "pgd@at-linf", "--attack", "pgd@at-l2", "--attack", "pgd@ensemble", "--attack", "pgd@bypass",
        "--attack", "pgd@bypass-ensemble", "--attack", "pgd@adapter:1", "--attack", "pgd@expectation:1",
        "--attack", "pgd@user:dense", "--source", "dense.keras", "--attack", "pgd@guessed-key", "--key-guess", "guess.key",
        "--attack", "pgd@key-leaked", "--attack", "pgd@key-leaked-bypass", "--attack", "square@query",
        "--outside-threat-model",
    )  # fmt: skip
    assert all(cell["status"] == "done" for cell in cells.values())
    outside = {source for (_, source), cell in cells.items() if not cell["inside_threat_model"]}
    assert outside == {"key-leaked", "key-leaked-bypass", "query"}
    assert len(cells) == 16  # with the unperturbed images, and the first of all
    assert cells["square", "query"]["queries"] > 0
    on_sources = json.loads(bench("results", "--what", "sources", "--format", "json", cwd=world).stdout)
    by_source = {row["source"]: row["accuracy_on_source"] for row in on_sources}
    assert by_source["key-leaked"] == cells["pgd", "key-leaked"]["accuracy"], "there the source is the defended model"


@pytest.mark.needs_process
def test_linac_its_surrogates_and_reconstructions(world: Path) -> None:
    cells = run(
        world, "--defence", "linac", "--attack", "pgd@surrogate:1", "--attack", "pgd@reconstruction:2",
        "--attack", "pgd@bypass",
    )  # fmt: skip
    assert all(cell["status"] == "done" for cell in cells.values())
    assert not list((world / "home").glob("transforms/*")), "transformed training images do not outlive the training"


@pytest.mark.needs_process
def test_what_is_trained_is_kept_and_can_be_trained_ahead(world: Path) -> None:
    done = bench("train", "--defence", "block-shuffle", "--source", "bypass", "--source", "surrogate:2", "--preset",
                 "tiny.toml", "--dataset", "mine.npz", cwd=world, BENCH_HOME=str(world / "home"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "block-shuffle bypass: there already" in done.stdout or "block-shuffle bypass: clean accuracy" in done.stdout
    refused = bench("run", "--defence", "block-shuffle", "--attack", "pgd@surrogate:3", "--no-train", "--preset",
                    "tiny.toml", "--dataset", "mine.npz", cwd=world, BENCH_HOME=str(world / "home"))  # fmt: skip
    assert refused.returncode == 1
    assert "is not trained yet: run 'bench train --defence block-shuffle --source" in refused.stderr


def test_attacker_keys_are_the_papers_then_others() -> None:
    from bench.attacker_keys import PAPER_KEYS, attacker_key

    assert attacker_key(1) == PAPER_KEYS[0]
    assert len({attacker_key(number) for number in range(1, 30)}) == 29
    assert all(-(2**63) <= attacker_key(number) < 2**63 for number in range(1, 30))


def test_the_papers_attacker_keys_come_from_the_generator_of_its_figure() -> None:
    """All ten are among the first 10,000 draws of the seeds 1 to 10 (docs/keysearch.md)."""
    from bench.attacker_keys import PAPER_KEYS

    bounds = np.iinfo(np.int64)
    drawn: set[int] = set()
    for seed in range(1, 11):
        drawn |= set(np.random.RandomState(seed).randint(bounds.min, bounds.max, 10_000, dtype=np.int64).tolist())
    assert set(PAPER_KEYS) <= drawn
