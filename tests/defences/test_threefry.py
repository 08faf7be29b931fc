"""The random numbers against the published test vectors, what the released code drew, and JAX itself."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from defences import threefry

GOLDEN = np.load(Path(__file__).parents[1] / "fixtures" / "linac_golden.npz")
KEYS = st.tuples(*[st.integers(0, 2**32 - 1)] * 2).map(lambda pair: np.array(pair, np.uint32))


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers_of_random123(key: tuple[int, int], counter: tuple[int, int], expected: tuple[int, int]) -> None:
    first, second = (np.array([word], np.uint32) for word in counter)
    x, y = threefry.threefry2x32(np.array(key, np.uint32), first, second)
    assert (x[0], y[0]) == expected


def released_keys() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The init, training and shuffle keys of the released code for the paper's key."""
    rng, init = threefry.split(threefry.key_words(int(GOLDEN["key"]), 32))
    rng, _ = threefry.split(rng)
    rng, training = threefry.split(rng)
    return init, training, threefry.split(rng)[1]


def test_splits_are_those_of_the_released_code() -> None:
    np.testing.assert_array_equal(np.stack(released_keys()), GOLDEN["split_keys"])


def test_permutations_are_those_of_the_released_code() -> None:
    _, training, shuffle = released_keys()
    np.testing.assert_array_equal(threefry.permutation(shuffle, 1024), GOLDEN["initial_shuffle"])
    epochs = [threefry.split(threefry.split(key)[1])[1] for key in threefry.split(training, 10)]
    np.testing.assert_array_equal([threefry.permutation(key, 1024) for key in epochs], GOLDEN["epoch_permutations"])


def test_truncated_normals_are_those_of_the_released_code() -> None:
    key = threefry.split(released_keys()[0])[1]
    weights = threefry.truncated_normal(key, (20, 256)) / np.float32(math.sqrt(20))
    np.testing.assert_allclose(weights, GOLDEN["init_layer0_w"], atol=1e-6)


def test_the_high_word_is_lost_with_32_key_bits() -> None:
    key = int(GOLDEN["key"])
    assert threefry.key_words(key).tolist() == [(key % 2**64) >> 32, key % 2**32]
    assert threefry.key_words(key, 32).tolist() == [0, key % 2**32]


def test_erfinv_inverts_erf() -> None:
    x = np.linspace(-0.9999, 0.9999, 4001).astype(np.float32)
    back = np.array([math.erf(value) for value in threefry.erfinv(x).astype(float)])
    np.testing.assert_allclose(back, x, atol=2e-7)


@settings(deadline=None)
@given(KEYS, st.integers(0, 3000))
def test_a_permutation_has_every_index_once(key: np.ndarray, count: int) -> None:
    assert np.array_equal(np.sort(threefry.permutation(key, count)), np.arange(count))


@settings(deadline=None)
@given(KEYS)
def test_truncated_normals_stay_inside_two_standard_deviations(key: np.ndarray) -> None:
    draws = threefry.truncated_normal(key, (2000,))
    assert np.abs(draws).max() < 2
    assert 0.8 < draws.std() < 0.96  # 0.88 in the limit
    assert abs(draws.mean()) < 0.1


@pytest.mark.benchmark
@settings(deadline=None, max_examples=20)  # JAX compiles for every size
@given(KEYS, st.integers(1, 2500))
def test_the_same_numbers_as_jax(key: np.ndarray, count: int) -> None:
    jax = pytest.importorskip("jax")
    with jax.threefry_partitionable(False):
        np.testing.assert_array_equal(threefry.split(key, 3), jax.random.split(key, 3))
        np.testing.assert_array_equal(threefry.words(key, count), jax.random.bits(key, (count,)))
        np.testing.assert_array_equal(threefry.permutation(key, count), jax.random.permutation(key, count))
        expected = jax.random.truncated_normal(key, -2, 2, (count,))
        np.testing.assert_allclose(threefry.truncated_normal(key, (count,)), expected, atol=2e-6)
