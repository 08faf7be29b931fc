"""`bench plan`: its counts are those of a run, what is stored is left out, and its stop watch is quick."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bench import order, plan, registry, spec
from bench.api import Defence, SourceDescription
from bench.data import datasets
from bench.evaluation import calibration, estimate
from bench.evaluation.calibration import Calibration, Seconds
from bench.evaluation.forecast import Forecast
from bench.order import Measured
from bench.plan import Choice
from tests.conftest import bench
from tests.networks import wide, wide_resnet

PLAN = ("plan", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--preset", "smoke", "--norm", "linf")


@pytest.mark.needs_process
def test_the_counts_are_those_of_a_run_and_what_is_stored_is_left_out(honest: Path) -> None:
    spent = sqlite3.connect(honest / "results" / "bench.db").execute("SELECT SUM(gradients) FROM cell").fetchone()[0]
    whole = bench(*PLAN, "--examples", "6", "--db", "none.db", cwd=honest, BENCH_HOME=str(honest / "home"))
    assert whole.returncode == 0, whole.stderr
    assert f"1 cells, at most {spent} gradients, 0 queries and 6 transforms; about " in whole.stdout
    assert not (honest / "none.db").exists(), "a plan writes nothing"
    done = bench(*PLAN, "--examples", "6", cwd=honest, BENCH_HOME=str(honest / "home"))
    assert "1 cells, at most 0 gradients, 0 queries and 0 transforms; about 0 s" in done.stdout


@pytest.mark.parametrize(
    ("attack", "gradients", "queries", "transforms"),
    [
        ("pgd@nominal", 1000, 0, 0),
        ("mt@surrogate:3", 36_000, 0, 36_000),
        ("square@reconstruction:1", 0, 100_000, 100_000),
        ("aa@bypass", 100 + 900 + 900, 5000, 0),
    ],
)
def test_the_papers_budgets(attack: str, gradients: int, queries: int, transforms: int) -> None:
    paper = spec.resolve("paper")
    defence = registry.defence("linac", paper.defences.get("linac", {}))
    choice = Choice(paper.engines, paper.budgets, paper.strategies("linac"))
    (pair,) = plan.pairs([attack], "linac", defence, choice)
    assert estimate.budget(pair) == estimate.Count(gradients, queries, transforms)


@pytest.mark.parametrize(
    ("attacks", "models"),
    [
        (["pgd@nominal", "mt@nominal"], 2),
        (["pgd@ensemble"], 4),
        (["pgd@ensemble", "pgd@nominal"], 4),
        (["pgd@expectation:3", "pgd@surrogate:2"], 4),
        (["pgd@bypass-ensemble", "pgd@bypass"], 5),
        (["pgd@bypass", "pgd@surrogate:1", "pgd@reconstruction:1"], 4),
    ],
)
def test_what_must_be_trained_is_every_member_once_and_the_classifier(
    attacks: list[str], models: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop, images = spec.resolve("laptop"), datasets.load("cifar10")
    name, defence = laptop.defence("linac")
    watch = Calibration(laptop, images, name, defence)
    monkeypatch.setattr(watch, "_timed", lambda forward, shape: Seconds(1.0, 3.0))
    found = plan.pairs(attacks, name, defence, Choice(laptop.engines, laptop.budgets, laptop.strategies(name)))
    assert estimate.training(laptop, name, found, 50_000, watch).models == models


def test_what_is_not_trained_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    laptop, images = spec.resolve("laptop"), datasets.load("cifar10")
    name, defence = laptop.defence("block-shuffle")
    watch = Calibration(laptop, images, name, defence)
    monkeypatch.setattr(watch, "_timed", lambda forward, shape: Seconds(1.0, 3.0))
    choice = Choice(own_models=("user:mine",), guess=True, outside=True)
    attacks = ["own-models", "guessed-key", "key-leaked", "query"]
    assert estimate.training(laptop, name, plan.pairs(attacks, name, defence, choice), 50_000, watch).models == 1


def test_the_paper_has_23_sources_for_transfer_and_bpda() -> None:
    paper = spec.resolve("paper")
    defence = registry.defence("linac", paper.defences.get("linac", {}))
    choice = Choice(paper.engines, paper.budgets, paper.strategies("linac"))
    found = plan.pairs(["transfer", "bpda"], "linac", defence, choice)
    assert len({pair.source for pair in found}) == 23
    assert len(found) == 23 * 4


@pytest.mark.parametrize(
    ("shape", "depth", "width"), [((32, 32, 3), 10, 2), ((32, 32, 8), 22, 1), ((31, 18, 5), 16, 3)]
)
def test_the_products_are_those_of_the_networks_layers(shape: tuple[int, int, int], depth: int, width: int) -> None:
    counted = 0
    for layer in wide_resnet(shape, 7, depth, width).layers:
        if hasattr(layer, "kernel"):
            places = layer.output.shape[1] * layer.output.shape[2] if len(layer.output.shape) == 4 else 1
            counted += int(np.prod(layer.kernel.shape)) * places
    assert wide(depth, width).cost(shape, 7) == counted


def test_a_well_known_network_has_its_published_size() -> None:
    """WRN-28-10: 5.2 billion multiplications (Zagoruyko and Komodakis count 5.2, later papers 5.25)."""
    assert wide(28, 10).cost((32, 32, 3), 10) == pytest.approx(5.2e9, rel=0.02)


def test_a_deep_network_is_timed_by_a_shallow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    paper, images = spec.resolve("paper"), datasets.load("cifar10")
    defence, said = registry.defence("block-shuffle", {}), list[str]()
    watch = Calibration(paper, images, "block-shuffle", defence, said.append)
    monkeypatch.setattr(watch, "_timed", lambda forward, shape: Seconds(1.0, 3.0))
    cost = {depth: wide(depth, 16).cost((32, 32, 3), 10) for depth in (16, 70, 106)}
    longer = {depth: cost[depth] / cost[16] for depth in (70, 106)}

    def once(source: str) -> Seconds:
        (pair,) = plan.pairs([f"pgd@{source}"], "block-shuffle", defence)
        return watch.source(model.description for model in pair.models)

    assert once("nominal") == Seconds(longer[70], 3 * longer[70])
    assert once("at-linf") == Seconds(longer[106], 3 * longer[106])
    assert once("surrogate:3") == Seconds(1 + longer[70], 3 + 3 * longer[70])
    assert once("ensemble").query == pytest.approx(2 * longer[70] + longer[106])
    assert once("expectation:2") == Seconds(2 + 2 * longer[70], 6 + 6 * longer[70])
    assert watch.judging() == 1 + longer[70]
    assert watch.stand_ins == {str(wide(depth, 16)): str(wide(16, 16)) for depth in (70, 106)}
    assert said == ["timing wide-resnet[depth=16,width=16] on 32×32×3", "timing the transform of block-shuffle"]


def test_what_a_run_on_survivors_takes_goes_by_what_stood_on_training_images(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        Measured("block-shuffle", "linf", "mt", "bypass", "bypass", 0.1, 0.75, 0.25),
        Measured("block-shuffle", "linf", "pgd", "nominal", "nominal", 0.1, 0.5, 0.1),
    )
    monkeypatch.setattr(order, "table", lambda: rows)
    name, defence = spec.resolve("laptop").defence("block-shuffle")
    watch = Calibration(spec.resolve("laptop"), datasets.load("cifar10"), name, defence)
    monkeypatch.setattr(watch, "_timed", lambda forward, shape: Seconds(1.0, 3.0))
    wanted = [
        "mt[steps=2,targets=3,restarts=1]@bypass",
        "pgd[steps=10,restarts=1]@nominal",
        "pgd[steps=4,restarts=1]@at-l2",
    ]
    pairs = plan.pairs(wanted, name, defence)
    found = estimate.steps(name, "linf", pairs, 40, watch)
    # Judging takes 2; a gradient of the nominal network 3, through the bypass 6.
    assert found == [
        estimate.ExpectedAttack("mt@bypass", 40, 40 * (6 * 6 + 2), 40 * (6 * 6 + 2)),
        estimate.ExpectedAttack("pgd@nominal", 10, 10 * 32, 40 * 32),
        estimate.ExpectedAttack("pgd@at-l2", 4, 4 * 14, 40 * 14),
    ]
    forecast = Forecast(name, [], estimate.Training(0, 0, 0.0), {"linf": found}, True, {})
    assert forecast.by_scope == {"all": 40 * (38 + 32 + 14), "survivors": 40 * 38 + 10 * 32 + 4 * 14}
    (other,) = {step.examples for step in estimate.steps(name, "l2", pairs, 40, watch)}
    assert other == 40, "nothing was measured in that norm"


def test_what_is_timed_is_the_pass_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform that sleeps, and sleeps again on the way back; one image per core, side by side."""
    monkeypatch.setattr(calibration, "SECONDS", 0.2)
    watch = Calibration(spec.resolve("laptop"), datasets.load("cifar10"), "slow", Slow())
    found, cores = watch.front(SourceDescription("surrogate", through=("defence",))), max(2, os.cpu_count() or 1)
    assert 0.06 <= found.query * cores < 1
    assert 0.12 <= found.gradient * cores < 2


class Slow(Defence):
    """Sleeps."""

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        def asleep(seconds: float, x: tf.Tensor) -> tf.Tensor:
            def sleep(value: np.ndarray) -> np.ndarray:
                time.sleep(seconds)
                return value

            return tf.ensure_shape(tf.numpy_function(sleep, [x], tf.float32, stateful=False), x.shape)

        @tf.custom_gradient
        def slow(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return asleep(0.06, x), lambda upstream: asleep(0.06, upstream)

        return slow(images)


@pytest.mark.needs_process
def test_the_papers_plan_is_made_in_a_minute_or_two(tmp_path: Path) -> None:
    done = bench("plan", "--defence", "linac", "--attack", "all", "--preset", "paper", cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "timing wide-resnet[depth=16,width=16]" in done.stderr
    assert "timing the transform of linac" in done.stderr
    sources, images, gradients, queries = 24, 2 * 10_000, 1000 + 36_000 + 1900, 100_000 + 5000
    assert f"linac: {4 * 2 * sources} cells, at most {sources * images * gradients:,} gradients" in done.stdout
    assert f"{sources * images * queries:,} queries" in done.stdout
    assert "…" not in done.stdout, "no count is cut off"
    assert (
        "assumed: wide-resnet[depth=106,width=16] takes as much longer than wide-resnet[depth=16,width=16]"
        in done.stdout
    )
