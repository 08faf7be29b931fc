"""PyTorch classifiers in the harness: the numbers are torch's own, nothing is held, and what is wrong is said."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from bench import registry
from bench.api import ModelSource, UsageError
from bench.data.datasets import Split
from bench.models import statistics, torch_factory, weights
from bench.models.architecture import Architecture
from bench.models.recipe import Recipe
from bench.models.torch_layer import AT_ONCE, TorchLayer
from bench.models.torch_network import put_state, read_weights
from bench.models.training import Trainer
from bench.support import devices
from bench.testing import check_network

if importlib.util.find_spec("torch") is None and not os.environ.get("CI"):
    pytest.skip("torch is not installed: pip install 'bench-keyed-defences[torch]'", allow_module_level=True)
import torch

from tests import torch_nets

devices.configure()
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.random((20, 32, 32, 3), np.float32)
LABELS = RANDOM.integers(0, 10, 20).astype(np.int32)
SHAPE = (32, 32, 3)


def network(factory: str, **settings: Any) -> Architecture:
    return Architecture.named("torch", {"factory": f"tests.torch_nets:{factory}", **settings})


def built(factory: str, **settings: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    return network(factory, **settings).build(SHAPE, 10)


def layer_of(model: keras.Model) -> TorchLayer:
    (layer,) = [layer for layer in model.layers if isinstance(layer, TorchLayer)]
    return layer


def in_torch(model: keras.Model, module: torch.nn.Module) -> torch.nn.Module:
    """The module by itself, with the weights of a model."""
    layer = layer_of(model)
    state = {
        name: torch.tensor(np.asarray(layer.state[tensor.name])).to(tensor.dtype)
        for tensor in layer.module.state
        for name in (tensor.name, *tensor.others)
    }
    module.load_state_dict(state)
    return module.eval()


def loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def torch_gradient(module: torch.nn.Module, images: np.ndarray, first: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Logits and the gradient of the loss, by torch alone."""
    leaf = torch.tensor(images, requires_grad=True)
    logits = module(leaf.permute(0, 3, 1, 2).contiguous() if first else leaf)
    value = torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS[: len(images)]).long(), reduction="sum")
    return logits.detach().numpy(), torch.autograd.grad(value, leaf)[0].numpy()


Compute = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def through_harness(model: keras.Model | Callable[[tf.Tensor], tf.Tensor]) -> Compute:
    """Logits and gradient as attacks compute them."""
    source = ModelSource("model", functools.partial(model, training=False) if isinstance(model, keras.Model) else model)

    @tf.function(reduce_retracing=True)
    def compiled(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = source.gradient(loss, images, labels)
        return found.logits, found.gradient

    return lambda images, labels: tuple(t.numpy() for t in compiled(tf.constant(images), tf.constant(labels)))


@pytest.mark.parametrize("factory", ["Tiny", "Last"])
def test_it_keeps_the_contract_of_networks(factory: str) -> None:
    settings = {"factory": f"tests.torch_nets:{factory}", "channels": "last" if factory == "Last" else "first"}
    check_network(registry.network("torch", settings), shape=(8, 8, 3))


@pytest.mark.slow
def test_a_resnet_18_gives_torchs_own_logits_and_gradients() -> None:
    model = built("resnet18")
    module = in_torch(model, torch_nets.resnet18()).train()
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0  # statistics that fit the images, as a training leaves them
    with torch.no_grad():
        module(torch.tensor(IMAGES).permute(0, 3, 1, 2))
    put_state(model, {name: value.numpy() for name, value in module.state_dict().items()}, Path("trained"))
    chosen = slice(AT_ONCE)  # as many as the harness puts through at once: any other number rounds differently at ReLUs
    logits, gradient = torch_gradient(module.eval(), IMAGES[chosen])
    found = through_harness(model)(IMAGES[chosen], LABELS[chosen])
    assert np.abs(logits).max() > 0.1
    assert np.abs(gradient).max() > 1e-3
    np.testing.assert_allclose(found[0], logits, atol=1e-5)
    np.testing.assert_allclose(found[1], gradient, atol=1e-4)
    assert layer_of(model).module.held == 0
    assert network("resnet18").cost(SHAPE, 10) == 555_422_720, "as by hand"


def test_channels_last_shared_and_whole_number_weights() -> None:
    model = built("Last", channels="last")
    names = ["first.weight", "first.bias", "second.bias", "logits.weight", "logits.bias", "order"]
    assert sorted(layer_of(model).state) == sorted(names), "a shared weight stands there once"
    assert sorted(weights.weights_by_name(model)) == sorted(f"torch/{name}" for name in names)
    logits, gradient = torch_gradient(in_torch(model, torch_nets.Last()), IMAGES, first=False)
    found = through_harness(model)(IMAGES, LABELS)
    np.testing.assert_allclose(found[0], logits, atol=1e-5)
    np.testing.assert_allclose(found[1], gradient, atol=1e-5)


def test_logarithms_of_probabilities_are_logits() -> None:
    model = built("probabilities", output="probabilities")
    expected = in_torch(model, torch_nets.probabilities())(torch.tensor(IMAGES).permute(0, 3, 1, 2))
    found = through_harness(model)(IMAGES, LABELS)
    np.testing.assert_allclose(found[0], np.log(expected.detach().numpy()), atol=1e-5)
    assert np.abs(found[1]).max() > 0


def test_layers_that_learn_their_sizes_from_an_image() -> None:
    model = built("lazy")
    assert layer_of(model).state["4.weight"].shape == (10, 4 * 30 * 30)
    assert np.isfinite(model(IMAGES, training=False)).all()


@pytest.mark.parametrize("factory", ["half", "double"])
def test_other_precisions_are_computed_in_float32(factory: str) -> None:
    model = built(factory)
    expected = in_torch(model, torch_nets.Tiny())(torch.tensor(IMAGES).permute(0, 3, 1, 2)).detach().numpy()
    np.testing.assert_allclose(model(IMAGES, training=False), expected, atol=1e-5)


def test_a_network_without_a_path_back_has_a_gradient_of_zero() -> None:
    assert np.array_equal(through_harness(built("cutting"))(IMAGES, LABELS)[1], np.zeros_like(IMAGES))


@pytest.mark.parametrize("factory", ["Tiny", "uneven"])
def test_companions_and_places_change_no_bit(factory: str) -> None:
    model = built(factory)
    compute = through_harness(model)
    logits, gradient = compute(IMAGES, LABELS)
    for count in (1, 3, AT_ONCE, AT_ONCE + 1):
        for seed in range(3):
            chosen = np.random.default_rng((count, seed)).permutation(len(IMAGES))[:count]
            found = compute(IMAGES[chosen], LABELS[chosen])
            assert np.array_equal(found[0], logits[chosen])
            assert np.array_equal(found[1], gradient[chosen])
    assert compute(IMAGES[:0], LABELS[:0])[1].shape == (0, *SHAPE)


@pytest.mark.parametrize("name", ["block-shuffle", "jpeg-23", "pca-block"])
def test_what_comes_before_a_module_in_its_batches_changes_no_bit_either(name: str) -> None:
    """Transforms and bypasses are computed on batches of the module's size too."""
    defence, model = registry.defence(name, {}), built("Tiny")
    state, bypass = defence.fit(IMAGES), defence.bypass(SHAPE)

    def forward(images: tf.Tensor) -> tf.Tensor:
        transformed = defence.transform(images, 5 if defence.keyed else None, state)
        return model(transformed, training=False) + model(bypass(images, training=False), training=False)

    compute = through_harness(forward)
    logits, gradient = compute(IMAGES, LABELS)
    for seed in range(3):
        chosen = np.random.default_rng(seed).permutation(len(IMAGES))[: AT_ONCE + seed]
        found = compute(IMAGES[chosen], LABELS[chosen])
        assert np.array_equal(found[0], logits[chosen])
        assert np.array_equal(found[1], gradient[chosen])


def test_a_module_is_given_batches_only_if_places_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose bits depend on where an image stands in its batch gets images one by one."""
    sizes = []
    for skewed in (False, True):
        model = built("Tiny")
        module = layer_of(model).module
        run = module._run

        def places_matter(images: np.ndarray, *rest: Any, run: Any = run, skewed: bool = skewed) -> Any:
            sizes.append((skewed, len(images)))
            place = np.arange(len(images), dtype=np.float32)[:, None, None, None]
            return run(images + place * np.float32(1e-6 * skewed), *rest)

        monkeypatch.setattr(module, "_run", places_matter)
        sizes.clear()
        through_harness(model)(IMAGES, LABELS)
        checked, rest = sizes[: 1 + (not skewed)], sizes[1 + (not skewed) :]
        assert set(checked) == {(skewed, AT_ONCE)}
        assert rest == [(skewed, 1)] * len(IMAGES) if skewed else rest == [(skewed, AT_ONCE)] * 2


def test_nothing_is_held_and_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built("Tiny")
    module = layer_of(model).module
    calls: list[bool] = []
    run = module._run

    def counted(*given: Any) -> Any:
        calls.append(given[-1])
        return run(*given)

    monkeypatch.setattr(module, "_run", counted)
    expected = torch_gradient(in_torch(model, torch_nets.Tiny()), IMAGES)[1]

    def gradient(images: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(images)
            value = tf.reduce_sum(loss(model(images, training=False), tf.constant(LABELS)))
        return tape.gradient(value, images)

    forward = tf.function(lambda images: model(images, training=False))
    images = tf.constant(IMAGES)
    forward(images)
    assert calls == [False], "without a gradient nothing is recorded"
    calls.clear()
    np.testing.assert_allclose(tf.function(gradient)(images), expected, atol=1e-5)
    assert calls == [True], "the gradient uses the forward pass that was"
    assert module.held == 0
    calls.clear()
    np.testing.assert_allclose(gradient(images), expected, atol=1e-5)
    assert calls == [False, True], "nobody knows that an eager pass will have a gradient"
    with tf.GradientTape() as tape:  # around a compiled function: now it records, asked for a gradient or not
        tape.watch(images)
        value = tf.reduce_sum(loss(forward(images), tf.constant(LABELS)))
    np.testing.assert_allclose(tape.gradient(value, images), expected, atol=1e-5)
    for _ in range(5):
        forward(images)
    assert module.held <= 1, "what nobody asks for goes with its number"


def test_a_tape_around_the_map_gets_the_same_gradient() -> None:
    model = built("Tiny")
    source = ModelSource("model", lambda images: model(images, training=False))

    @tf.function
    def outside(images: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(images)
            value = tf.reduce_sum(loss(source.logits(images), tf.constant(LABELS)))
        return tape.gradient(value, images)

    inside = through_harness(model)(IMAGES, LABELS)[1]
    np.testing.assert_allclose(outside(tf.constant(IMAGES)), inside, atol=1e-6)
    assert layer_of(model).module.held == 0


def test_threads_of_torch_are_left_as_they_are() -> None:
    before = torch.get_num_threads()
    model, seen = built("Tiny"), []
    module = layer_of(model).module
    module._template.register_forward_hook(lambda *_: seen.append((threading.get_ident(), torch.get_num_threads())))
    through_harness(model)(IMAGES, LABELS)
    assert {count for _, count in seen} == {1}
    assert torch.get_num_threads() == before


def test_weights_go_to_arrays_and_back() -> None:
    first, second = built("Tiny"), network("Tiny").build(SHAPE, 10)
    assert not np.array_equal(first(IMAGES, training=False), second(IMAGES, training=False)), "drawn at random"
    weights.put_into(second, weights.arrays_of(first, {}), Path("first"))
    assert np.array_equal(first(IMAGES, training=False), second(IMAGES, training=False))
    again = built("Tiny")
    assert np.array_equal(again(IMAGES, training=False), first(IMAGES, training=False)), "the same seed"


DATA = Split(RANDOM.integers(0, 256, (48, 32, 32, 3), np.uint8), RANDOM.integers(0, 10, 48).astype(np.int32))


def a_trainer(factory: str = "Dropping") -> Trainer:
    recipe = Recipe(network(factory), epochs=3, batch_size=16, slices=2, learning_rate=0.05, statistics=2)
    keras.utils.set_random_seed(recipe.seed)
    return Trainer(recipe.network.build(SHAPE, 10), recipe, DATA, 10)


class Halted(Exception):
    pass


def test_interrupted_and_resumed_is_as_if_it_never_was(tmp_path: Path) -> None:
    whole = a_trainer()
    start = whole.model.get_weights()
    whole.run(tmp_path / "whole.npz", lambda progress: None)

    def stop(progress: Any) -> None:
        if (progress.epoch, progress.step) == (1, 3):
            raise Halted

    with pytest.raises(Halted):
        a_trainer().run(tmp_path / "part.npz", stop)
    resumed = a_trainer()
    resumed.run(tmp_path / "part.npz", lambda progress: None)
    for one, other, before in zip(whole.model.get_weights(), resumed.model.get_weights(), start, strict=True):
        assert np.array_equal(one, other)
        assert not np.array_equal(one, before)
    assert layer_of(whole.model).module.held == 0


def test_dropout_is_drawn_from_the_batch() -> None:
    model = built("Dropping")
    before = torch.random.get_rng_state()
    twice, other = [model(IMAGES[:8], training=True).numpy() for _ in range(2)], IMAGES[:8].copy()
    other[0, 0, 0, 0] += 1e-6
    assert np.array_equal(*twice), "the same batch, the same draws"
    assert np.abs(model(other, training=True).numpy() - twice[0]).max() > 1e-3, "another batch, others"
    assert torch.equal(torch.random.get_rng_state(), before), "the user's own generator is left alone"


def test_in_inference_nothing_is_written() -> None:
    model = built("Counting")
    first, second = (model(IMAGES, training=False).numpy() for _ in range(2))
    assert np.array_equal(first, second)
    assert float(layer_of(model).state["count"]) == 0
    model(IMAGES, training=True)
    assert float(layer_of(model).state["count"]) == 1


def test_a_step_of_training_is_torchs_own() -> None:
    model = built("Tiny")
    module = in_torch(model, torch_nets.Tiny()).train()
    value = torch.nn.functional.cross_entropy(
        module(torch.tensor(IMAGES).permute(0, 3, 1, 2)), torch.tensor(LABELS).long()
    )
    gradients = torch.autograd.grad(value, tuple(module.parameters()))

    @tf.function
    def step() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss_ = tf.reduce_mean(loss(model(tf.constant(IMAGES), training=True), tf.constant(LABELS)))
        return tape.gradient(loss_, model.trainable_variables)

    found = dict(zip([v.name for v in model.trainable_variables], step(), strict=True))
    assert sorted(found) == sorted(name for name, _ in module.named_parameters())
    for (name, _), gradient in zip(module.named_parameters(), gradients, strict=True):
        np.testing.assert_allclose(found[name], gradient, atol=1e-5)
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(np.asarray(layer_of(model).state[name]), buffer, atol=1e-6)


def test_statistics_are_taken_again() -> None:
    model = built("Tiny")
    statistics.retake(model, lambda images: model(images, training=True), [IMAGES[:10], IMAGES[10:]])
    state = layer_of(model).state
    (first_layer, *_) = in_torch(model, torch_nets.Tiny()).children()
    first = first_layer(torch.tensor(IMAGES).permute(0, 3, 1, 2)).detach().numpy()
    np.testing.assert_allclose(np.asarray(state["1.running_mean"]), first.mean((0, 2, 3)), atol=1e-5)
    np.testing.assert_allclose(np.asarray(state["1.running_var"]), first.var((0, 2, 3)), rtol=1e-2)
    before = np.asarray(state["1.running_mean"]).copy()
    model(IMAGES[:2], training=True)
    assert np.abs(np.asarray(state["1.running_mean"]) - before).max() < 0.2 * np.abs(before).max(), "as it was before"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"factory": ""}, "factory is ''; give package.module:factory"),
        ({"factory": "tests.torch_nets"}, "give package.module:factory"),
        ({"factory": "tests.torch_nets:Tiny()"}, "give package.module:factory"),
        ({"channels": "middle"}, "channels is 'middle'; choose first or last"),
        ({"output": "scores"}, "output is 'scores'; choose logits or probabilities"),
        ({"factory": "tests.torch_knots:Tiny"}, "there is no module tests.torch_knots"),
        ({"factory": "nowhere.at.all:Tiny"}, "there is no module nowhere (of nowhere.at.all:Tiny)"),
        ({"factory": "tests.torch_nets:Tony"}, "tests.torch_nets has no Tony: did you mean 'Tiny'"),
        ({"factory": "tests.torch_nets:not_a_function"}, "is an object of type int, not a function"),
        ({"factory": "tests.torch_nets:failing"}, "failing failed: RuntimeError: no weights to be found"),
        ({"factory": "tests.torch_nets:nothing"}, "gave an object of type NoneType, not a torch.nn.Module"),
        ({"factory": "tests.torch_nets:complex_weights"}, "1.weight of tests.torch_nets:complex_weights is complex"),
        ({"channels": "last"}, "fails on an input of 1×32×32×3 (channels=last; there is channels=first too)"),
        ({"factory": "tests.torch_nets:uneven"}, "gives 1×10 for an input of 1×3×32×32"),
    ],
)
def test_what_is_wrong_with_a_network_is_named(settings: Mapping[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Architecture.named("torch", {"factory": "tests.torch_nets:Tiny", **settings}).build(SHAPE, 11)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"needs PyTorch, .*: pip install 'bench-keyed-defences\[torch\]'"):
        network("Tiny").build(SHAPE, 10)


def test_a_module_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_user.py").write_text("from tests.torch_nets import Tiny as net")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    assert isinstance(torch_factory.module_of("of_a_user:net", SHAPE, 10), torch_nets.Tiny)


def state() -> dict[str, torch.Tensor]:
    return dict(torch_nets.Tiny().state_dict())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_of_both_kinds_of_files(tmp_path: Path, suffix: str) -> None:
    from safetensors.torch import save_file

    module, path, model = torch_nets.Tiny().eval(), tmp_path / f"weights{suffix}", built("Tiny")
    for value in module.state_dict().values():
        value.copy_(value * 2)
    if suffix == ".pt":
        torch.save(module.state_dict(), path)
    else:
        save_file(module.bfloat16().state_dict(), path)
        module.float()
    put_state(model, read_weights(path), path)
    expected = module(torch.tensor(IMAGES).permute(0, 3, 1, 2)).detach().numpy()
    np.testing.assert_allclose(model(IMAGES, training=False), expected, atol=1e-5)


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("touch exploded",)


def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"0.weight": Bomb()}, "bomb.pt")
    torch.save(torch_nets.Tiny(), "module.pt")
    torch.save({"epoch": 3, "state_dict": state()}, "checkpoint.pt")
    torch.save([1, 2], "list.pt")
    torch.save({**state(), "7.bias": torch.full((10,), torch.nan)}, "nan.pt")
    torch.save({**state(), "1.num_batches_tracked": torch.tensor(2**24)}, "large.pt")
    for name in ("text.pt", "text.safetensors"):
        Path(name).write_text("weights?")
    for name, said in (
        ("none.pt", "weights file none.pt does not exist"),
        ("bomb.pt", "such as code, which is not run; save module.state_dict()"),
        ("module.pt", "such as code, which is not run"),
        ("checkpoint.pt", "'epoch' in it is an object of type int, not a tensor; save module.state_dict() alone"),
        ("list.pt", "list.pt is no state_dict but an object of type list"),
        ("nan.pt", "nan.pt: 7.bias has NaN or infinite values"),
        ("large.pt", "1.num_batches_tracked has whole numbers of 16777216 or more"),
        ("text.pt", "text.pt is no state_dict"),
        ("text.safetensors", "text.safetensors is no safetensors file, or is cut short"),
    ):
        with pytest.raises(UsageError) as caught:
            read_weights(Path(name))
        assert said in str(caught.value)
    assert not Path("exploded").exists()


def test_a_torch_with_holes_reads_safetensors_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    torch.save(state(), tmp_path / "mine.pt")
    save_file(state(), tmp_path / "mine.safetensors")
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(
        UsageError, match=r"torch 2\.9\.1\+cpu may run code .*; give safetensors, or install torch 2\.10"
    ):
        read_weights(tmp_path / "mine.pt")
    assert read_weights(tmp_path / "mine.safetensors").keys() == state().keys()


def test_weights_that_do_not_fit_are_listed() -> None:
    model = built("Tiny")
    before = model.get_weights()
    given = {f"model.{name}": value.numpy() for name, value in state().items()}
    given["7.bias"] = np.zeros(11, np.float32)
    with pytest.raises(UsageError) as caught:
        put_state(model, given, Path("mine.pt"))
    assert str(caught.value) == (
        "mine.pt does not fit the module: missing: 0.weight, 0.bias, 1.weight, 1.bias, 1.running_mean and 5 more; "
        "unexpected: model.0.weight, model.0.bias, model.1.weight, model.1.bias, model.1.running_mean and 6 more; "
        "of another shape: 7.bias (11, not 10)"
    )
    assert all(np.array_equal(one, other) for one, other in zip(before, model.get_weights(), strict=True))


def test_shared_weights_must_agree() -> None:
    model = built("Last", channels="last")
    given = {name: value.numpy() for name, value in torch_nets.Last().state_dict().items()}
    put_state(model, given, Path("good.pt"))
    assert np.array_equal(np.asarray(layer_of(model).state["first.weight"]), given["second.weight"])
    put_state(model, {name: value for name, value in given.items() if name != "first.weight"}, Path("once.pt"))
    with pytest.raises(UsageError, match=r"first\.weight and second\.weight differ, and are one tensor"):
        put_state(model, {**given, "second.weight": given["second.weight"] + 1}, Path("bad.pt"))
