"""What recipes for the fast network do: rates, averages, shifts and flips, batch statistics, bfloat16, kept bytes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from bench import registry
from bench.api import Defence, Shape, UsageError
from bench.data.datasets import Dataset, Split
from bench.models import augmentation, catalogue, precision, statistics
from bench.models.architecture import Architecture
from bench.models.catalogue import ClassifierSpec
from bench.models.optimiser import Lookahead, Nesterov
from bench.models.recipe import Recipe
from bench.models.training import Trainer
from bench.models.transforms import TransformedCopies
from bench.support import devices
from bench.support.progress import untracked

devices.configure()
RANDOM = np.random.default_rng(0)
DATA = Split(RANDOM.integers(0, 256, (48, 8, 8, 3), np.uint8), RANDOM.integers(0, 3, 48).astype(np.int32))
FAST = Architecture.named("fast-cnn", {"widths": (8, 8)})
PIXELWISE = Architecture.named("fast-cnn", {"widths": (8, 8), "front": "pixelwise", "front_widths": (6, 4, 5)})
RECIPE = Recipe(
    FAST, epochs=4, batch_size=16, slices=2, learning_rate=0.3, schedule="linear", warmup=0.2, first_rate=0.2,
    last_rate=0.1, momentum=0.85, weight_decay=1e-3, offset_rate=16.0, label_smoothing=0.2, shift=2, border="reflect",
    flips="alternating", average=0.95, lookahead=5, statistics=2, cutmix=False,
)  # fmt: skip


def a_trainer(recipe: Recipe = RECIPE, **others: Any) -> Trainer:
    keras.utils.set_random_seed(recipe.seed)
    model = recipe.network.build((8, 8, 3), 3)
    recipe.network.prepare(model, DATA.images)
    return Trainer(model, recipe, DATA, 3, **others)


def trained(recipe: Recipe, folder: Path, **others: Any) -> list[np.ndarray]:
    trainer = a_trainer(recipe, **others)
    trainer.run(folder / f"{hashlib.sha256(repr(recipe).encode()).hexdigest()}.npz", lambda progress: None)
    weights: list[np.ndarray] = trainer.model.get_weights()
    return weights


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


class Interrupted(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("bfloat16", [False, True])
def test_interrupted_and_resumed_is_as_if_it_never_was(
    bfloat16: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)  # kernels emulate it where the processor has none
    recipe = dataclasses.replace(RECIPE, bfloat16=bfloat16)
    whole = trained(recipe, tmp_path)

    def stop(progress: object) -> None:
        if (progress.epoch, progress.step) == (2, 3):  # type: ignore[attr-defined]
            raise Interrupted

    with pytest.raises(Interrupted):
        a_trainer(recipe).run(tmp_path / "part.npz", stop)
    resumed = a_trainer(recipe)
    resumed.run(tmp_path / "part.npz", lambda progress: None)
    assert same(whole, resumed.model.get_weights())


WEIGHTS_OF_THREADS = """
import sys
from pathlib import Path
from bench.support import devices
devices.configure(int(sys.argv[1]), training=True)
import tests.bench.test_fast_training as here
for weights in here.trained(here.RECIPE, Path(sys.argv[2])):
    sys.stdout.write(here.hashlib.sha256(weights.tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.needs_process
def test_the_number_of_cores_changes_no_bit(tmp_path: Path) -> None:
    found = []
    for threads in (1, 3):
        folder = tmp_path / str(threads)
        folder.mkdir()
        command = [sys.executable, "-c", WEIGHTS_OF_THREADS, str(threads), str(folder)]
        found.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert len(found[0]) > 64
    assert found[0] == found[1]


def test_old_recipes_say_nothing_of_new_fields() -> None:
    named = Recipe().as_json().keys()
    assert named.isdisjoint({"first_rate", "shift", "border", "augment", "lookahead", "bfloat16", "copy_bits"})
    assert Recipe.from_json(RECIPE.as_json()) == RECIPE
    assert RECIPE.as_json()["lookahead"] == 5


@pytest.mark.parametrize(("fields", "message"), [
    ({"border": "wrap"}, "border must be zeros or reflect"), ({"flips": "never"}, "flips must be random or alternating"),
    ({"copy_bits": 4}, "copy_bits must be 8 or 16"), ({"label_smoothing": 1.0}, "label_smoothing"),
    ({"lookahead": -1}, "lookahead must not be below 0"), ({"shift": -1}, "shift must not be below 0"),
    ({"augment": "picture"}, "wide-resnet.* makes no picture")])  # fmt: skip
def test_recipes_that_make_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Recipe(**fields)


def test_a_linear_schedule_goes_up_to_the_rate_and_down_again() -> None:
    recipe = Recipe(learning_rate=0.75, schedule="linear", warmup=0.23, first_rate=0.2, last_rate=0.07)
    assert [recipe.rate(p) for p in (0, 0.115, 0.23, 0.615, 1)] == pytest.approx(
        [0.15, 0.45, 0.75, 0.75 * 0.535, 0.0525]
    )


def test_offsets_learn_at_a_rate_of_their_own() -> None:
    layer = keras.layers.BatchNormalization(scale=False)
    layer.build((None, 4))
    kernel = keras.Variable(np.ones((2, 2), np.float32), name="kernel")
    optimiser = Nesterov([layer.beta, kernel], Recipe(momentum=0.5, weight_decay=0.0, offset_rate=64.0))
    optimiser.step([tf.ones(4), tf.ones((2, 2))], tf.constant(0.01))
    assert np.allclose(layer.beta, -64 * 0.01 * 1.5)
    assert np.allclose(kernel, 1 - 0.01 * 1.5)


def test_lookahead_sets_weights_back_to_an_average_that_keeps_more_and_more() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    average = Lookahead(model, 0.95, 5, 20)
    update = tf.function(average.update)
    weight = slow = float(model.get_weights()[0][0, 0])
    for step in range(20):
        weight += 0.3
        model.set_weights([np.full((1, 1), weight, np.float32)])
        update(tf.constant(average.decay_at(step), tf.float32))
        if step % 5 == 4:
            keep = 0.95**5 * ((step + 1) / 20) ** 3
            weight = slow = keep * slow + (1 - keep) * weight
        assert float(model.get_weights()[0][0, 0]) == pytest.approx(weight, abs=1e-5)
    model.set_weights([np.full((1, 1), 7, np.float32)])
    average.take_over()
    assert float(model.get_weights()[0][0, 0]) == pytest.approx(slow, abs=1e-5)


def test_smoothed_labels_still_sum_to_one() -> None:
    weights = augmentation.weights_of(tf.constant([1, 2]), RECIPE, 4).numpy()
    assert np.allclose(weights, [[0.05, 0.85, 0.05, 0.05], [0.05, 0.05, 0.85, 0.05]])


def test_shifts_reflect_the_image_at_its_border() -> None:
    images = RANDOM.uniform(1, 2, (30, 8, 8, 3)).astype(np.float32)
    recipe = dataclasses.replace(RECIPE, cutmix=False)
    flips = np.arange(30) % 2 == 0
    labels = np.zeros(30, np.int32)
    moved = augmentation.augmented(tf.constant(images), labels, recipe, 2, tf.constant([1, 2]), tf.constant(flips))[0]
    seen = set()
    for image, flip, out in zip(images, flips, moved.numpy(), strict=True):
        padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode="reflect")
        unflipped = out[:, ::-1] if flip else out
        seen |= {(y, x) for y in range(5) for x in range(5) if np.array_equal(unflipped, padded[y : y + 8, x : x + 8])}
    assert len(seen) > 10
    assert max(max(place) for place in seen) == 4
    assert min(min(place) for place in seen) == 0


def test_alternating_flips() -> None:
    epochs = [augmentation.alternating(1000, 7, epoch) for epoch in range(4)]
    assert 400 < epochs[0].sum() < 600
    assert np.array_equal(epochs[1], ~epochs[0])
    assert np.array_equal(epochs[2], epochs[0])
    assert not np.array_equal(epochs[0], augmentation.alternating(1000, 8, 0))


def test_statistics_taken_again_are_those_of_the_images() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(momentum=0.99)])
    images = RANDOM.normal(2, 3, (40, 3)).astype(np.float32)
    statistics.retake(model, lambda batch: model(batch, training=True), np.split(images, 4))
    layer = model.layers[0]
    assert np.allclose(layer.moving_mean, images.mean(axis=0), atol=1e-5)
    assert np.allclose(layer.moving_variance, images.var(axis=0), rtol=1e-5)
    assert layer.momentum == 0.99


@pytest.mark.slow
def test_a_training_ends_with_statistics_of_its_averaged_weights(tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, statistics=3)  # all three batches: every image once
    trainer = a_trainer(recipe)
    trainer.run(tmp_path / "c.npz", lambda progress: None)
    first = trainer.model.get_layer("block-0-conv-0-batchnorm")
    inputs = keras.Model(trainer.model.input, first.input)(DATA.unit()).numpy()
    assert np.allclose(first.moving_mean, inputs.mean(axis=(0, 1, 2)), atol=1e-4)
    assert np.allclose(first.moving_variance, inputs.var(axis=(0, 1, 2)), rtol=1e-3)


@pytest.mark.slow
def test_bfloat16_is_off_where_the_processor_lacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dataclasses.replace(RECIPE, bfloat16=True)
    monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
    plain = trained(RECIPE, tmp_path)
    assert same(plain, trained(asked, tmp_path / "without"))
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    with_it = trained(asked, tmp_path / "with")
    assert not same(plain, with_it)
    assert all(weights.dtype == np.float32 for weights in with_it)


@pytest.mark.slow
def test_convolutions_are_in_float32_again_when_training_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    trainer = a_trainer(dataclasses.replace(RECIPE, bfloat16=True, epochs=1))
    seen = set()
    trainer.run(tmp_path / "c", lambda p: seen.add(trainer.model.get_layer("block-0-conv-0").compute_dtype))
    assert seen == {"bfloat16"}
    assert {layer.compute_dtype for layer in trainer.model.layers} == {"float32"}


@pytest.mark.slow
def test_without_shifts_a_picture_is_trained_as_the_image_is(tmp_path: Path) -> None:
    plain = dataclasses.replace(RECIPE, network=PIXELWISE, crop_and_flip=False)
    assert same(trained(plain, tmp_path), trained(dataclasses.replace(plain, augment="picture"), tmp_path))


@pytest.mark.slow
def test_pictures_are_shifted_while_training_only(tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, network=PIXELWISE, augment="picture", epochs=1, learning_rate=1e-9)
    still = dataclasses.replace(recipe, crop_and_flip=False)
    moved_losses: list[float] = []
    still_losses: list[float] = []
    moved, unmoved = a_trainer(recipe), a_trainer(still)
    moved.run(tmp_path / "moved.npz", lambda p: moved_losses.append(p.loss))
    unmoved.run(tmp_path / "still.npz", lambda p: still_losses.append(p.loss))
    assert moved_losses != still_losses
    given = [trainer.model(DATA.unit(), training=False).numpy() for trainer in (moved, unmoved)]
    assert np.allclose(given[0], given[1], atol=1e-4)


def test_copies_of_pictures_may_be_mixed() -> None:
    Recipe(PIXELWISE, copies=1, cutmix=True, augment="picture")
    with pytest.raises(UsageError, match="copies go without cutmix"):
        Recipe(PIXELWISE, copies=1, cutmix=True)


class Mixing(Defence):
    """A transform of three channels to five, some of them positive only."""

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        mixed = tf.tensordot(images - 0.5, tf.constant(MIXING), 1)
        return tf.concat([tf.nn.relu(mixed[..., :3]), mixed[..., 3:]], axis=-1)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:2], 5)


MIXING = RANDOM.normal(size=(3, 5)).astype(np.float32) * np.array([1, 30, 0, 1, 0.01], np.float32)


def copies_of(recipe: Recipe) -> TransformedCopies:
    dataset = Dataset("few", DATA, ("a", "b", "c"), None, DATA.fingerprint)
    spec = ClassifierSpec(dataset, "mixing", Mixing(), None, recipe)
    return TransformedCopies(spec, lambda images: Mixing().transform(images, None, {}), DATA)


def test_copies_in_bytes_are_close_to_what_they_are_copies_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_HOME", str(tmp_path))
    recipe = Recipe(PIXELWISE, copies=2, copy_bits=8, cutmix=False)
    copies = copies_of(recipe)
    kept = copies.all(untracked)
    assert [(copy.dtype, copy.shape) for copy in kept] == [(np.dtype(np.uint8), (48, 8, 8, 5))] * 2
    wanted = Mixing().transform(tf.constant(DATA.unit()), None, {}).numpy()
    decoded = copies.decode(tf.constant(kept[0])).numpy()
    span = 1.25 * (wanted.max(axis=(0, 1, 2), initial=0) - wanted.min(axis=(0, 1, 2), initial=0))
    assert (np.abs(decoded - wanted) <= 0.51 * span / 255 + 1e-6).all()
    assert np.array_equal(decoded[..., :3] == 0, np.round(wanted[..., :3] / np.maximum(span[:3] / 255, 1e-12)) == 0)
    assert np.allclose(copies.decode(tf.constant(kept[1])), decoded[:, :, ::-1], atol=span.max() / 255)
    again = copies_of(recipe)
    assert np.array_equal(again.all(untracked)[0], kept[0]), "found, not made again"
    copies.remove()
    assert not any((tmp_path / "transforms").iterdir())


def test_copies_in_half_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_HOME", str(tmp_path))
    copies = copies_of(Recipe(PIXELWISE, copies=1, cutmix=False))
    wanted = Mixing().transform(tf.constant(DATA.unit()), None, {}).numpy()
    assert np.array_equal(copies.decode(tf.constant(copies.all(untracked)[0])), wanted.astype(np.float16))


def test_one_fit_gives_the_copies_of_a_surrogate_and_of_a_reconstruction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_HOME", str(tmp_path))
    linac = registry.defence("linac", {"frequencies": 2, "layers": 3, "width": 4, "epochs": 1, "batch_pixels": 8})
    reconstructing = registry.defence("linac", linac.reconstruction() or {})
    dataset = Dataset("few", DATA, ("a", "b", "c"), None, DATA.fingerprint)
    recipe = Recipe(PIXELWISE, copies=1, copy_bits=8, cutmix=False)

    def copies(defence: Defence, both: bool) -> TransformedCopies:
        spec = ClassifierSpec(dataset, "linac", defence, f"{catalogue.ATTACKER}7", recipe)
        given = functools.partial(linac.transform_and_reconstruction, key=7) if both else None
        return TransformedCopies(spec, lambda images: defence.transform(images, 7, {}), DATA, given)

    assert catalogue.gives_both(linac)
    assert not catalogue.gives_both(reconstructing), "there is nothing beside it"
    surrogate = copies(linac, True).all(untracked)[0]
    fits: list[int] = []
    monkeypatch.setattr(type(linac), "transform", lambda self, images, key, state: fits.append(1))
    reconstruction = copies(reconstructing, False)
    kept = reconstruction.all(untracked)[0]
    assert not fits, "it was kept beside the other"
    monkeypatch.undo()
    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "apart"))
    assert np.array_equal(copies(linac, False).all(untracked)[0], surrogate)
    assert np.array_equal(copies(reconstructing, False).all(untracked)[0], kept)
    monkeypatch.setenv("BENCH_HOME", str(tmp_path))
    copies(linac, True).remove()
    assert np.array_equal(reconstruction.all(untracked)[0], kept), "it stays until it is trained"
