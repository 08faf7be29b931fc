"""Key search: the guesses are the paper's, the race keeps its bound, and the right key of a real LINAC stands out."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from bench.api import UsageError
from bench.data import datasets
from bench.keys import PUBLISHED_KEY
from bench.keysearch import guesses
from bench.keysearch.guesses import KeysFile, MetaSeeds, PaperGenerator, RandomKeys
from bench.keysearch.race import Race
from bench.keysearch.scorer import Score, Scorer
from defences.linac import Linac, LinacConfig

TABLE_4 = {
    1383227977468296715, -3328443931658504707, -127094507362684985, -7808219206569127925, -8772667224621836765,
    -70640792831170485, 8263151932495004089, -4594861196100637268, -6520968232434877967, -8722766234183220599,
}  # fmt: skip


def test_the_papers_generator_makes_the_keys_of_its_table_4() -> None:
    guesses = list(PaperGenerator())
    assert len(guesses) == len(PaperGenerator()) == 100_000
    assert {guess.key for guess in guesses} >= TABLE_4
    assert guesses[10_000].origin == "paper, seed 2, draw 1"


def test_draws_in_chunks_are_draws_one_by_one() -> None:
    random, bounds = np.random.RandomState(7), np.iinfo(np.int64)
    one_by_one = [int(random.randint(bounds.min, bounds.max, dtype=np.int64)) for _ in range(2500)]
    assert list(guesses.draws(7, 2500)) == one_by_one


def test_meta_seed_42_is_the_published_key() -> None:
    guesses = list(MetaSeeds(0, 99))
    assert len(guesses) == len(MetaSeeds(0, 99)) == 100
    assert (guesses[42].key, guesses[42].origin) == (PUBLISHED_KEY, "meta-seed 42")
    several = list(MetaSeeds(41, 42, draws=3))
    assert (several[3].key, several[3].origin) == (PUBLISHED_KEY, "meta-seed 42, draw 1")
    with pytest.raises(UsageError, match=r"meta-seeds 5\.\.4"):
        MetaSeeds(5, 4)


def test_more_random_keys_begin_with_the_same_ones() -> None:
    few, many = list(RandomKeys(1500)), list(RandomKeys(3000))
    assert many[:1500] == few
    assert len({guess.key for guess in many}) == 3000
    keys = np.array([guess.key for guess in many])
    assert 0.45 < (keys > 0).mean() < 0.55
    assert keys.min() < -(2**62)
    assert {guess.key for guess in RandomKeys(10, seed=1)}.isdisjoint(guess.key for guess in many)


def test_a_keys_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text("# mine\n5\n\n -9223372036854775808 \n")
    assert [(guess.key, guess.origin) for guess in KeysFile(path)] == [
        (5, "keys.txt, line 2"),
        (-(2**63), "keys.txt, line 4"),
    ]
    path.write_text("5\nmine:1234567890123\n")  # a private key's file, by mistake
    with pytest.raises(UsageError, match="line 2: not a signed 64-bit integer") as caught:
        KeysFile(path)
    assert "1234567890123" not in str(caught.value)
    for content, said in (("9223372036854775808", "line 1"), ("# none", "holds no key")):
        path.write_text(content)
        with pytest.raises(UsageError, match=said):
            KeysFile(path)
    with pytest.raises(UsageError, match="cannot read keys file"):
        KeysFile(tmp_path / "missing.txt")


def dropped(race: Race, right: np.ndarray) -> np.ndarray:
    """Which of some runs of images (R×N, bool) the race drops: straight from its rule, without the recursion."""
    cuts, so_far = race.boundary(), right.cumsum(axis=1)
    return np.any([so_far[:, n - 1] <= cut for n, cut in cuts.items()], axis=0)


@pytest.mark.parametrize(
    ("floor", "error", "look_every"), [(0.7, 0.05, 1), (0.5, 0.1, 2), (0.9, 0.02, 3), (0.6, 0.2, 4)]
)
def test_the_bound_against_every_possible_race(floor: float, error: float, look_every: int) -> None:
    race = Race(floor, error, 12, look_every)
    runs = np.array(list(itertools.product([False, True], repeat=12)))
    gone, right = dropped(race, runs), runs.sum(axis=1)
    assert gone.any(), "a race that drops nothing shows nothing"
    probabilities = [float((p**right * (1 - p) ** (12 - right))[gone].sum()) for p in (floor, floor + 0.05, 0.99)]
    assert probabilities[0] <= error * (1 + 1e-9)
    assert probabilities == sorted(probabilities, reverse=True), "a better key is lost no more often"


@pytest.mark.parametrize("floor", [0.4, 0.88])
def test_the_bound_by_simulation_and_that_it_is_not_wasted(floor: float) -> None:
    error, runs = 0.01, 40_000
    race = Race(floor, error, 200)
    right = np.random.default_rng(0).random((runs, 200)) < floor
    rate = dropped(race, right).mean()
    spread = 4 * np.sqrt(error / runs)  # four standard deviations: a wrong alarm in some 30,000 test runs
    assert error * 0.9 - spread < rate <= error + spread


def test_hopeless_keys_are_dropped_after_a_few_images() -> None:
    race = Race(0.88, 1e-4, 500)  # the paper's 93 % less 5 points
    for accuracy, most in ((0.1, 12), (0.3, 16), (0.57, 50)):  # chance; the paper's mean and best guess
        right = np.random.default_rng(1).random((2000, 500)) < accuracy
        so_far, looks = right.cumsum(axis=1), race.boundary()
        ends = np.full(2000, 500)
        for n, cut in reversed(looks.items()):
            ends[so_far[:, n - 1] <= cut] = n
        assert ends.mean() < most
        assert (ends < 500).all()


TRUE_KEY = 5550123


@pytest.fixture(scope="module")
def small_linac() -> tuple[Linac, keras.Model, np.ndarray, np.ndarray]:
    """A LINAC defence whose classifier, a linear one solved for exactly, knows 200 real images by heart."""
    split = datasets.load("cifar10").test.first(200)
    images, labels = split.unit()[:, ::2, ::2], split.labels
    defence = Linac(LinacConfig(width=16, epochs=2))
    features = defence.transform(tf.constant(images), TRUE_KEY, {}).numpy().reshape(len(images), -1)
    centre = features.mean(axis=0)
    centred = (features - centre).astype(np.float64)
    kernel = centred.T @ np.linalg.solve(centred @ centred.T + 1e-3 * np.eye(200), np.eye(10)[labels])
    model = keras.Sequential([keras.Input((16, 16, 16)), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.layers[-1].set_weights([kernel.astype(np.float32), (-centre @ kernel).astype(np.float32)])
    return defence, model, images, labels


def score_all(scorer: Scorer, keys: list[int]) -> dict[int, Score]:
    with ThreadPoolExecutor(2) as pool:
        return {score.key: score for score in pool.map(scorer.score, keys)}


@pytest.mark.slow
def test_the_right_key_of_a_linac_stands_out_and_the_race_saves(
    small_linac: tuple[Linac, keras.Model, np.ndarray, np.ndarray],
) -> None:
    defence, model, images, labels = small_linac
    keys = [guess.key for guess in RandomKeys(30)] + [TRUE_KEY]
    race = Race(0.9, 1e-4, len(images))
    whole = score_all(Scorer(defence, {}, model, images, labels, race, to_the_end=True), keys)
    accuracies = {key: score.correct / score.images for key, score in whole.items()}
    assert accuracies[TRUE_KEY] > 0.95
    assert max(accuracy for key, accuracy in accuracies.items() if key != TRUE_KEY) < 0.6
    raced = score_all(Scorer(defence, {}, model, images, labels, race), keys)
    assert [key for key, score in raced.items() if score.stopped is None] == [TRUE_KEY]
    # What was noted while scoring to the end is what the race does.
    assert {key: score.stopped for key, score in raced.items()} == {key: score.stopped for key, score in whole.items()}
    assert all(score.images == (score.stopped or len(images)) for score in raced.values())
    assert sum(score.images for score in raced.values()) < sum(score.images for score in whole.values()) / 5
