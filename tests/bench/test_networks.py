"""Networks: one from outside is planned, trained, attacked, stored and exchanged; and what is wrong with one is said."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from click.testing import CliRunner

from bench import keys, registry, spec
from bench.api import BenchError, UsageError
from bench.cli import main
from bench.data import datasets
from bench.models import artifacts, catalogue, recipe, weights
from bench.models.architecture import Architecture, NotInstalled
from bench.models.weights import weights_by_name
from bench.testing import check_network
from tests import packages, tiny
from tests.conftest import bench
from tests.networks import wide

MODULE = '''
from __future__ import annotations

import dataclasses

import keras

from bench.api import Network, UsageError


@dataclasses.dataclass(frozen=True)
class Settings:
    channels: tuple[int, ...] = (4, 8)
    bias: bool = True

    def __post_init__(self) -> None:
        if not self.channels:
            raise UsageError("plain: channels is empty; it must have one number per layer")


class Plain(Network):
    """Convolutions of stride 2, one after the other."""

    Settings = Settings
    limits = {"channels": 64}

    def build(self, shape, classes):
        layers = [keras.layers.Conv2D(n, 3, 2, "same", use_bias=self.settings.bias) for n in self.settings.channels]
        rest = [keras.layers.BatchNormalization(), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(classes)]
        return keras.Sequential([keras.Input(shape), *layers, *rest])

    def cost(self, shape, classes):
        rows, columns, before = shape
        total = 0
        for channels in self.settings.channels:
            rows, columns = -(-rows // 2), -(-columns // 2)
            total += rows * columns * 9 * before * channels
            before = channels
        return total + before * classes

    def timed_by(self):
        return Plain(dataclasses.replace(self.settings, channels=self.settings.channels[:1]))
'''
CONTRACT = (
    "wide-resnet[depth=10,width=1]", "fast-cnn[widths=8+8]", "fast-cnn[widths=8+8,front=learned]",
    "fast-cnn[widths=8+8,front=pixelwise]",
)  # fmt: skip
REQUEST = "plain[channels=4+6+8]"
PLAIN = tiny.TOML.replace("depth = 10\nwidth = 1", f'network = "{REQUEST}"')


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Somebody's package with a network of three layers, installed; and the environment of processes that have it too."""
    (tmp_path / "packages").mkdir()
    packages.write(tmp_path / "packages", "plain-pack", "networks", "plain", "plain_network", MODULE, "Plain")
    monkeypatch.syspath_prepend(tmp_path / "packages")
    registry.entries.cache_clear()
    yield {"PYTHONPATH": str(tmp_path / "packages"), "BENCH_HOME": str(tmp_path / "home")}
    registry.entries.cache_clear()


def run(*arguments: object, cwd: Path, **environment: str) -> str:
    """What `bench …` prints, run in this process, which has TensorFlow already; its workers are new ones all the same."""
    with contextlib.chdir(cwd):
        done = CliRunner(env=environment).invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.needs_process
def test_it_is_listed_planned_trained_and_attacked(plain: dict[str, str], tmp_path: Path) -> None:
    assert "plain        Convolutions of stride 2" in run("list", "networks", cwd=tmp_path)
    assert "channels = (4, 8)" in run("show", "plain", cwd=tmp_path)
    options = (*tiny.make(tmp_path), "--defence", "block-shuffle", "--attack", "pgd@nominal", "--attack", "pgd@bypass")
    (tmp_path / "tiny.toml").write_text(PLAIN)
    planned = run("plan", *options, cwd=tmp_path, **plain)
    assert "timing plain[channels=4,bias=True] on 32×32×3" in planned
    assert "assumed: plain[channels=4+6+8,bias=True] takes as much longer than plain[channels=4,bias=True]" in planned
    run("run", *options, cwd=tmp_path, **plain)
    described = [json.loads(p.read_text()) for p in (tmp_path / "home" / "artifacts").glob("*/artifact.json")]
    assert len(described) == 3, "the defended classifier, the nominal one and the bypass"
    settings = {"channels": [4, 6, 8], "bias": True}
    for content in described:
        assert content["spec"]["recipe"]["network"] == {"name": "plain", "version": "1", "settings": settings}
        assert not {"depth", "width"} & content["spec"]["recipe"].keys()
    stored = sqlite3.connect(tmp_path / "results" / "bench.db")
    sources = dict(stored.execute("SELECT source.name, n_done FROM cell JOIN source ON source.id = source_id"))
    assert sources == {"clean": 4, "nominal": 4, "bypass": 4}


@pytest.mark.needs_process
def test_its_results_are_exchanged(plain: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_HOME", plain["BENCH_HOME"])
    (tmp_path / "tiny.toml").write_text(PLAIN)
    put_untrained(spec.resolve(str(tmp_path / "tiny.toml")))
    options = ("--preset", "tiny.toml", "--defence", "block-shuffle")
    run("run", *options, "--attack", "pgd@nominal", "--no-train", cwd=tmp_path, **plain)
    assert "8 rows judged again, 0 problems" in run("verify", cwd=tmp_path, **plain)
    run("keysearch", *options, "--paper", "--random", "3", cwd=tmp_path, **plain)
    run("export", "all.zip", "--with-weights", cwd=tmp_path, **plain)
    there = {**plain, "BENCH_HOME": str(tmp_path / "there")}
    elsewhere: dict[str, Any] = {"BENCH_HOME": str(tmp_path / "elsewhere")}
    with_it = run("import", "all.zip", "--db", "there.db", cwd=tmp_path, **there)
    assert "2 cells and 8 rows taken over" in with_it
    assert "not judged" not in with_it
    without_it = bench("import", "all.zip", "--db", "elsewhere.db", cwd=tmp_path, **elsewhere).stdout
    assert "not judged here: " in without_it
    assert "unknown network 'plain'" in without_it
    assert "2 cells and 8 rows taken over" in without_it


def put_untrained(run_: spec.Spec) -> None:
    """Classifiers with random weights where a run finds them."""
    images = datasets.load("cifar10")
    for name, key in (("none", None), ("block-shuffle", keys.PUBLISHED_ID)):
        wanted = catalogue.spec_for(run_, images, name, registry.defence(name, {}), key)
        record = {"clean_accuracy": 0.5, "test_images": 10_000, "seconds": 0}
        artifacts.save(wanted.fingerprint, wanted.as_json(), weights.arrays_of(wanted.build(), {}), record)


@pytest.mark.parametrize("request_", CONTRACT)
def test_every_network_keeps_the_contract(request_: str) -> None:
    check_network(request_, shape=(8, 8, 3))


def test_a_model_from_elsewhere_keeps_the_contract() -> None:
    """A model of Keras; one of PyTorch is in test_torch_network.py."""
    layers = [
        keras.layers.Conv2D(4, 3, 2),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
    config = json.dumps(keras.saving.serialize_keras_object(model))
    check_network(registry.network("keras", {"config": config}), shape=(8, 8, 3))


def test_every_built_in_network_is_held_to_it() -> None:
    built_in = {name for name, entry in registry.entries("networks").items() if entry.built_in}
    assert built_in == {*(registry.parse(request)[0] for request in CONTRACT), "keras", "torch"}


def test_a_value_goes_to_json_and_text_and_back(plain: dict[str, str]) -> None:
    for value in (Architecture.named("plain", {"channels": [4, 6]}), wide(16, 2)):
        assert Architecture.read(json.loads(json.dumps(value.as_json()))) == value
        assert Architecture.read(str(value)) == value
    assert Architecture.read("wide-resnet[depth=16,width=2]") == wide(16, 2)
    assert Architecture.read({"name": "wide-resnet"}) == wide(70, 16)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("wide-resnot", "unknown network 'wide-resnot': did you mean 'wide-resnet'"),
        ("wide-resnet[depth=11]", "depth is 11; a wide residual network has 6·n + 4 layers"),
        ("wide-resnet[width=0]", "width is 0; it must be at least 1"),
        ("wide-resnet[deph=10]", "wide-resnet has no setting 'deph': did you mean 'depth'"),
        ("wide-resnet[depth=many]", "depth is 'many'; it must be of type int"),
        ("plain[channels=4+many]", "channels is 'many'; it must be of type int"),
        ("plain[channels=]", "plain: channels is '"),
        ({"name": "wide-resnet", "depth": 10}, "give 'name[setting=value,…]', or a table of name and settings"),
        ({"settings": {}}, "give 'name[setting=value,…]', or a table of name and settings"),
        ({"name": "wide-resnet", "settings": [10, 2]}, "settings is [10, 2]; it must be a table"),
        (
            {"name": "wide-resnet", "version": "2", "settings": {"dropout": 0.3}},
            "network wide-resnet is of version 1 here, not 2",
        ),
        (10, "network is 10; give 'name[setting=value,…]'"),
    ],
)
def test_what_is_wrong_with_a_network_is_named(plain: dict[str, str], given: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        recipe.Recipe.from_json({"network": given})
    assert said in str(caught.value)


def test_a_network_that_is_not_here_is_told_from_one_that_is_wrong() -> None:
    for given in ("odd", {"name": "wide-resnet", "version": "2"}):
        with pytest.raises(NotInstalled):
            Architecture.read(given)


def test_limits(plain: dict[str, str]) -> None:
    wide(196, 32).check_limits()
    Architecture.named("plain", {"channels": [64, 64]}).check_limits()
    for value, said in (
        (wide(202, 1), "depth is above 200"),
        (wide(10, 33), "width is above 32"),
        (Architecture.named("plain", {"channels": [64, 65]}), "channels is above 64"),
        (Architecture.named("plain", {"channels": [1] * 101}), "channels has 101 values; 100 are the most"),
    ):
        with pytest.raises(UsageError, match=said):
            value.check_limits()


def test_weights_have_the_same_names_whatever_was_built_before(plain: dict[str, str]) -> None:
    network = Architecture.named("plain", {"channels": [4, 6]})
    first, second = (network.build((8, 8, 3), 3) for _ in range(2))
    assert [v.path for v in first.weights] != [v.path for v in second.weights], "Keras counts on"
    names = list(weights_by_name(first))
    assert names == list(weights_by_name(second))
    assert [name for name in names if "kernel" in name] == [
        "sequential/conv2d/kernel", "sequential/conv2d_1/kernel", "sequential/dense/kernel",
    ]  # fmt: skip
    weights.put_into(second, weights.arrays_of(first, {}), Path("first"))
    assert all(np.array_equal(a, b) for a, b in zip(first.get_weights(), second.get_weights(), strict=True))


def test_a_network_that_builds_something_else_is_named(plain: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    network = Architecture.named("plain", {})
    plugin = registry.entry("networks", "plain").load()
    built = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)])
    monkeypatch.setattr(plugin, "build", lambda self, shape, classes: built)
    assert network.build((8, 8, 3), 3) is built
    with pytest.raises(
        BenchError, match=r"plain\[channels=4\+8,bias=True\] was asked for .* to \(None, 5\), and built"
    ):
        network.build((8, 8, 3), 5)


class Pair(keras.layers.Layer):
    """Two layers in one, without names."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = keras.layers.Dense(3), keras.layers.Dense(3, name="other")

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        return self.other(self.one(inputs))


def test_layers_in_layers_have_names_too() -> None:
    for _ in range(2):
        model = keras.Sequential([keras.Input((3,)), Pair(), Pair(), keras.layers.Dense(2, name="logits")])
        assert [name for name in weights_by_name(model) if "kernel" in name] == [
            "sequential/pair/dense/kernel", "sequential/pair/other/kernel", "sequential/pair_1/dense/kernel",
            "sequential/pair_1/other/kernel", "sequential/logits/kernel",
        ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Layers:
    """A preset's `[training]` and a recipe over it, and the network that the two mean."""

    training: dict[str, object]
    changes: dict[str, object]
    means: str


@pytest.mark.parametrize(
    "layers",
    [
        Layers({"depth": 16, "width": 2}, {}, "wide-resnet[depth=16,width=2]"),
        Layers({"depth": 16, "width": 2}, {"depth": 22}, "wide-resnet[depth=22,width=2]"),
        Layers({"depth": 16, "width": 2}, {"network": "plain"}, "plain[channels=4+8,bias=True]"),
        Layers({"network": "plain"}, {}, "plain[channels=4+8,bias=True]"),
        Layers({"network": "plain"}, {"network": "plain[bias=false]"}, "plain[channels=4+8,bias=False]"),
        Layers({"network": "plain"}, {"depth": 10, "width": 1}, "wide-resnet[depth=10,width=1]"),
        Layers({}, {}, "wide-resnet[depth=70,width=16]"),
    ],
    ids=lambda layers: f"{layers.training} {layers.changes}",
)
def test_a_recipe_may_have_a_network_of_its_own(plain: dict[str, str], layers: Layers) -> None:
    run_ = dataclasses.replace(spec.resolve("smoke"), training=layers.training, recipes={"mine": layers.changes})
    assert str(recipe.of_run(run_, "mine")[0].network) == layers.means


def test_depth_beside_another_network_is_refused(plain: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="depth and network are given"):
        recipe.Recipe.from_json({"depth": 10, "network": "plain"})
