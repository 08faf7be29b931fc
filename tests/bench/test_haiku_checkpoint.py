"""The published checkpoint's format: read safely, used completely, and giving the logits it should."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bench.api import BenchError, UsageError
from bench.models import catalogue, haiku_checkpoint
from bench.models.architecture import Architecture
from tests.networks import wide, wide_resnet
from tests.processes import bench

CHANNELS = 8
Pair = tuple[dict[str, dict[str, np.ndarray]], dict[str, dict[str, np.ndarray]]]


def checkpoint(channels: int = CHANNELS, blocks: int = 2, width: int = 1, classes: int = 10) -> Pair:
    """Random weights in the published layout."""
    random = np.random.default_rng(0)
    params: dict[str, dict[str, np.ndarray]] = {}
    state: dict[str, dict[str, np.ndarray]] = {}

    def conv(name: str, size: int, fan_in: int, fan_out: int) -> None:
        kernel = random.normal(size=(size, size, fan_in, fan_out)) / np.sqrt(size * size * fan_in)
        params[f"wide_res_net/~/{name}"] = {"w": kernel.astype(np.float32)}

    def norm(name: str, count: int) -> None:
        module, shape = f"wide_res_net/~/{name}", (1, 1, 1, count)
        params[module] = {"scale": random.uniform(0.5, 1.5, shape).astype(np.float32)}
        for average, low in (("mean_ema", -0.5), ("var_ema", 0.5)):
            value = random.uniform(low, low + 1, shape).astype(np.float32)
            state[f"{module}/~/{average}"] = {"average": value, "hidden": value * 3, "counter": np.array(7, np.int32)}

    conv("init_conv", 3, channels, 16)
    before = 16
    for group, base in enumerate((16, 32, 64)):
        for block in range(blocks):
            name, after = f"resnet_lay_{group}_block_{block}/~/", base * width
            norm(name + "batchnorm_0", before)
            conv(name + "conv_0", 3, before, after)
            norm(name + "batchnorm_1", after)
            conv(name + "conv_1", 3, after, after)
            if block == 0:
                conv(name + "shortcut", 1, before, after)
            before = after
    norm("batchnorm", before)
    logits = random.normal(size=(before, classes)).astype(np.float32)
    params["wide_res_net/~/logits"] = {"w": logits, "b": random.normal(size=classes).astype(np.float32)}
    return params, state


def forward(pair: Pair, x: np.ndarray, blocks: int = 2) -> np.ndarray:
    """The published network, written out from its description: images (B×H×W×C) to logits (B×classes)."""
    params, state = pair

    def conv(name: str, x: tf.Tensor, stride: int = 1) -> tf.Tensor:
        return tf.nn.conv2d(x, params[f"wide_res_net/~/{name}"]["w"], stride, "SAME")

    def norm(name: str, x: tf.Tensor) -> tf.Tensor:
        module = f"wide_res_net/~/{name}"
        mean, var = (state[f"{module}/~/{part}"]["average"] for part in ("mean_ema", "var_ema"))
        return tf.nn.swish((x - mean) / tf.sqrt(var + 1e-5) * params[module]["scale"])

    x = conv("init_conv", tf.constant(x))
    for group in range(3):
        for block in range(blocks):
            name, stride = f"resnet_lay_{group}_block_{block}/~/", 2 if group and not block else 1
            active = norm(name + "batchnorm_0", x)
            inside = conv(name + "conv_1", norm(name + "batchnorm_1", conv(name + "conv_0", active, stride)))
            x = inside + (conv(name + "shortcut", active, stride) if block == 0 else x)
    final = params["wide_res_net/~/logits"]
    return tf.reduce_mean(norm("batchnorm", x), (1, 2)).numpy() @ final["w"] + final["b"]


def write(path: Path, pair: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(pair, protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_logits_are_those_of_an_independent_forward_pass(tmp_path: Path, protocol: int, wrapped: bool) -> None:
    pair, path = checkpoint(), tmp_path / "small.npy"
    if wrapped:
        box = np.empty(2, object)
        box[:] = pair
        np.save(path, box, allow_pickle=True)
    else:
        write(path, pair, protocol)
    model = wide_resnet((16, 16, CHANNELS), 10, 16, 1)
    haiku_checkpoint.import_into(model, haiku_checkpoint.load(path))
    images = np.random.default_rng(1).normal(size=(3, 16, 16, CHANNELS)).astype(np.float32)
    np.testing.assert_allclose(model(images, training=False), forward(pair, images), rtol=1e-4, atol=1e-4)


def test_haikus_own_mappings_are_read_without_haiku(tmp_path: Path) -> None:
    # FlatMapping({"m": FlatMapping({"w": 1.5})}), then the pair with an empty one: written by hand, opcode by opcode.
    opened = b"chaiku._src.data_structures\nFlatMapping\n("
    scalar = pickle.dumps(np.float32(1.5), 0).rstrip(b".")
    path = tmp_path / "flat.pickle"
    path.write_bytes(b"(" + opened + b"(dVm\n" + opened + b"(dVw\n" + scalar + b"stRstR" + opened + b"(dtRt.")
    assert {name: float(value) for name, value in haiku_checkpoint.load(path).items()} == {"m:w": 1.5}


class Attack:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_pickle_that_asks_for_anything_else_is_refused_and_runs_nothing(tmp_path: Path, wrapped: bool) -> None:
    params, state = checkpoint()
    params["wide_res_net/~/logits"]["w"] = Attack(tmp_path / "ran")  # type: ignore[assignment]
    path = tmp_path / "evil.npy"
    if wrapped:
        box = np.empty(2, object)
        box[:] = (params, state)
        np.save(path, box, allow_pickle=True)
    else:
        write(path, (params, state))
    with pytest.raises(BenchError, match=rf"asks for {os.name}\.mkdir"):
        haiku_checkpoint.load(path)
    assert not (tmp_path / "ran").exists()


def test_other_codecs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "codec.pickle"
    path.write_bytes(b"c_codecs\nencode\n(Vtext\nVrot13\ntR.")
    with pytest.raises(BenchError, match="rot13"):
        haiku_checkpoint.load(path)


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"\x93NUMPY\x01\x00", pickle.dumps(checkpoint())[:5000]])
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.npy"
    path.write_bytes(content)
    with pytest.raises(BenchError, match="cannot be read, or is cut short"):
        haiku_checkpoint.load(path)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        haiku_checkpoint.load(tmp_path / "none.npy")


@pytest.mark.parametrize("content", [({}, {}, {}), {"a": 1}, ([], {}), ({"m": 1}, {}), ({"m": {"w": "text"}}, {})])
def test_another_structure_is_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(BenchError, match=r"no pair of mappings|not a mapping|not an array"):
        haiku_checkpoint.load(write(tmp_path / "other.npy", content))


def broken(change: str) -> Pair:
    params, state = checkpoint()
    if change == "missing":
        del params["wide_res_net/~/resnet_lay_1_block_0/~/shortcut"]
    elif change == "unexpected":
        params["wide_res_net/~/extra"] = {"w": np.zeros(3, np.float32)}
    elif change == "shape":
        params["wide_res_net/~/logits"]["w"] = np.zeros((64, 11), np.float32)
    elif change == "nan":
        state["wide_res_net/~/batchnorm/~/var_ema"]["average"][0, 0, 0, 3] = np.nan
    return params, state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", "resnet_lay_1_block_0/~/shortcut:w is missing"),
        ("unexpected", "wide_res_net/~/extra:w has no place"),
        ("shape", "logits:w is (64, 11), where the network has (64, 10)"),
        ("nan", "var_ema:average has NaN"),
    ],
)
def test_a_checkpoint_of_another_network_changes_nothing(tmp_path: Path, change: str, message: str) -> None:
    model = wide_resnet((16, 16, CHANNELS), 10, 16, 1)
    before = model.get_weights()
    with pytest.raises(BenchError, match=re.escape(message)):
        haiku_checkpoint.import_into(model, haiku_checkpoint.load(write(tmp_path / "small.npy", broken(change))))
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_a_checkpoint_is_of_one_kind_of_network(tmp_path: Path) -> None:
    arrays = haiku_checkpoint.load(write(tmp_path / "small.npy", checkpoint()))
    model = haiku_checkpoint.network(wide(16, 1), (16, 16, CHANNELS), 10, arrays)
    assert np.array_equal(model.get_layer("logits").bias, arrays["wide_res_net/~/logits:b"])
    with pytest.raises(UsageError, match=r"is of a wide-resnet, and the preset's network is other\[layers=3\]"):
        haiku_checkpoint.network(Architecture("other", "1", {"layers": 3}), (16, 16, CHANNELS), 10, arrays)


@pytest.mark.slow
def test_the_published_network_has_its_parameters(tmp_path: Path) -> None:
    """WRN-70-16 on 256 channels: 266,793,498 parameters, and a checkpoint of its shape fits (5 GB of memory)."""
    model = wide_resnet((32, 32, 256), 10, 70, 16)
    assert sum(int(np.prod(weight.shape)) for weight in model.trainable_weights) == 266_793_498
    params, state = checkpoint(channels=256, blocks=11, width=16)
    assert sum(array.size for part in params.values() for array in part.values()) == 266_793_498
    haiku_checkpoint.import_into(model, haiku_checkpoint.load(write(tmp_path / "published.npy", (params, state))))


@pytest.mark.needs_process
def test_the_command_keeps_the_classifier_where_a_run_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import registry, spec
    from bench.data import datasets
    from bench.models import artifacts

    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "home"))
    preset = tmp_path / "tiny.toml"
    preset.write_text(
        'dataset = "cifar10"\nexamples = 1\nnorms = ["linf"]\n[epsilon]\nlinf = "8/255"\n[training]\ndepth = 16\nwidth = 1\n'
    )
    defence = f"linac[width={CHANNELS},layers=2,representation_layer=1,epochs=1]"
    file = write(tmp_path / "small.npy", checkpoint())
    arguments = ["import-checkpoint", str(file), "--preset", str(preset), "--defence", defence, "--check", "2"]
    result = bench(*arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "on the first 2 test images" in result.stdout
    resolved = spec.resolve(str(preset))
    name, settings = registry.parse(defence)
    chosen = registry.defence(name, settings)
    wanted = catalogue.spec_for(resolved, datasets.load("cifar10"), name, chosen, "published")
    found = artifacts.find(wanted.fingerprint)
    assert found is not None
    assert found.record["imported_from"] == "small.npy"
    kernel = wanted.load(found.weights, found.weights_sha256).model.get_layer("init_conv").kernel
    np.testing.assert_array_equal(kernel, checkpoint()[0]["wide_res_net/~/init_conv"]["w"])
