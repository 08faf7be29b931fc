"""Training: interrupted and resumed it ends where an undisturbed one does; augmentation and averaging do what they say."""

from __future__ import annotations

import concurrent.futures
import threading
import time
import types
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from bench.api import BenchError, UsageError
from bench.data.datasets import Split
from bench.models import artifacts, catalogue
from bench.models.augmentation import augmented
from bench.models.recipe import Recipe
from bench.models.training import Trainer
from bench.models.weights import arrays_of, put_into, read_arrays
from bench.support import devices
from bench.support.progress import untracked
from tests.networks import wide, wide_resnet

devices.configure()
RANDOM = np.random.default_rng(0)
DATA = Split(RANDOM.integers(0, 256, (48, 8, 8, 3), np.uint8), RANDOM.integers(0, 3, 48).astype(np.int32))
RECIPE = Recipe(wide(10, 1), epochs=4, batch_size=16, slices=2, learning_rate=0.05)


def a_trainer(recipe: Recipe = RECIPE) -> Trainer:
    keras.utils.set_random_seed(recipe.seed)
    return Trainer(recipe.network.build((8, 8, 3), 3), recipe, DATA, 3)


class Interrupted(Exception):
    pass


@pytest.mark.slow
def test_interrupted_and_resumed_is_as_if_it_never_was(tmp_path: Path) -> None:
    whole = a_trainer()
    whole.run(tmp_path / "whole.npz", lambda progress: None)

    def stop(progress: object) -> None:
        if (progress.epoch, progress.step) == (2, 3):  # type: ignore[attr-defined]
            raise Interrupted

    with pytest.raises(Interrupted):
        a_trainer().run(tmp_path / "part.npz", stop)
    resumed, epochs = a_trainer(), []
    resumed.run(tmp_path / "part.npz", lambda progress: epochs.append(progress.epoch))
    assert epochs[0] == 2, "it went on from the last checkpoint"
    for one, other in zip(whole.model.get_weights(), resumed.model.get_weights(), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
def test_training_learns() -> None:
    losses: list[float] = []
    recipe = Recipe(wide(10, 1), epochs=40, batch_size=16, learning_rate=0.05, cutmix=False, crop_and_flip=False)
    trainer = a_trainer(recipe)
    for _ in range(recipe.epochs):
        trainer._run_epoch(lambda p: losses.append(p.loss))
        trainer.epoch += 1
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.slow
def test_a_diverging_training_says_so(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="diverged in epoch 1"):
        a_trainer(Recipe(wide(10, 1), epochs=1, batch_size=16, learning_rate=1e30)).run(tmp_path / "c", lambda p: None)


def test_cutmix_mixes_labels_by_area() -> None:
    images = tf.constant(np.arange(6, dtype=np.float32)[:, None, None, None] * np.ones((1, 16, 16, 3), np.float32))
    labels = tf.constant([0, 1, 2, 0, 1, 2])
    mixed, targets = augmented(images, labels, Recipe(crop_and_flip=False), 3, tf.constant([1, 2]))
    for i in range(6):
        share = float(np.mean(mixed[i].numpy() != i))
        assert float(targets[i, labels[i]]) == pytest.approx(1 - share, abs=1e-6)
        assert set(np.unique(mixed[i])) <= {float(i), float((i - 1) % 6)}
    assert 0.05 < float(np.mean(mixed.numpy() != images.numpy())) < 0.95


def test_crops_move_whole_images_by_at_most_four() -> None:
    image = RANDOM.uniform(1, 2, (1, 12, 12, 3)).astype(np.float32)
    seen = set()
    for seed in range(40):
        out = augmented(tf.constant(image), tf.constant([0]), Recipe(cutmix=False), 2, tf.constant([seed, 0]))[
            0
        ].numpy()[0]
        padded = np.pad(image[0], ((4, 4), (4, 4), (0, 0)))
        for flip in (False, True):
            for y in range(9):
                for x in range(9):
                    crop = padded[y : y + 12, x : x + 12]
                    if np.array_equal(out, crop[:, ::-1] if flip else crop):
                        seen.add((flip, y, x))
    assert len(seen) > 20
    assert {flip for flip, _, _ in seen} == {False, True}


@pytest.mark.parametrize("depth", [9, 11, 4, 0, -2])
def test_depths_that_no_network_has(depth: int) -> None:
    with pytest.raises(UsageError, match=f"depth is {depth}"):
        wide_resnet((8, 8, 3), 3, depth, 1)


def test_weights_of_another_architecture_are_refused_untouched(tmp_path: Path) -> None:
    small, large = wide_resnet((8, 8, 3), 3, 10, 1), wide_resnet((8, 8, 3), 3, 10, 2)
    np.savez(tmp_path / "large.npz", **arrays_of(large, {}))  # type: ignore[arg-type]
    before = small.get_weights()
    with pytest.raises(UsageError, match="another architecture"):
        put_into(small, read_arrays(tmp_path / "large.npz"), tmp_path / "large.npz")
    deeper = arrays_of(wide_resnet((8, 8, 3), 3, 16, 1), {})
    with pytest.raises(UsageError, match=r"another architecture: .* unexpected"):
        put_into(small, deeper, tmp_path)
    assert all(np.array_equal(a, b) for a, b in zip(before, small.get_weights(), strict=True))


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    whole = tmp_path / "whole.npz"
    np.savez(whole, **arrays_of(wide_resnet((8, 8, 3), 3, 10, 1), {}))  # type: ignore[arg-type]
    (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:-1000])
    (tmp_path / "text.npz").write_text("weights")
    np.savez(tmp_path / "pickle.npz", x=np.array([object()]))
    for name in ("cut", "text", "pickle"):
        with pytest.raises(UsageError, match="is not a weights file, or is cut short"):
            read_arrays(tmp_path / f"{name}.npz")
    with pytest.raises(UsageError, match="does not exist"):
        read_arrays(tmp_path / "missing.npz")


def test_two_that_want_the_same_classifier_train_it_once(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench train` waits for another process that trains the same, and takes what that one made."""
    made, trained, said = object(), threading.Event(), list[str]()

    def train(*given: object) -> object:
        time.sleep(0.5)
        trained.set()
        return made

    monkeypatch.setattr(catalogue, "train", train)
    monkeypatch.setattr(artifacts, "find", lambda fingerprint: made if trained.is_set() else None)
    wanted: Any = types.SimpleNamespace(fingerprint="f" * 64)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(catalogue.train_once, wanted, None, "linac", said.append, untracked, "training linac")
            for _ in range(2)
        ]
    assert [call.result() for call in calls] == [made, made]
    assert sorted(said) == ["another process is training linac; waiting for it", "training linac"]
