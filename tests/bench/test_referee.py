"""The referee refuses what is not of the board, whatever the attack says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import norms
from bench.vault.referee import RefusedImages, check

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.uniform(0.2, 0.8, (4, 6, 6, 3)).astype(np.float32)
EPSILON = 8 / 255


def moved(by: float) -> np.ndarray:
    return (IMAGES + np.float32(by)).astype(np.float32)


def test_the_ball_is_measured_exactly() -> None:
    assert norms.named("linf").distance(IMAGES, moved(0.01)) == pytest.approx(0.01, abs=1e-6)
    assert norms.named("l2").distance(IMAGES, moved(0.01)) == pytest.approx(0.01 * np.sqrt(6 * 6 * 3), abs=1e-6)
    check(IMAGES, moved(EPSILON), "linf", EPSILON)
    check(IMAGES, moved(0.5 / np.sqrt(108)), "l2", 0.5)


class Liar(np.ndarray):
    """Says that it is the images, whatever it is."""

    shape = IMAGES.shape  # type: ignore[override]
    dtype = IMAGES.dtype

    def astype(self, *arguments: Any, **options: Any) -> np.ndarray:
        return IMAGES.astype(*arguments, **options)

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray:  # type: ignore[override]
        return IMAGES

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        own = [IMAGES if isinstance(one, Liar) else one for one in inputs]
        return getattr(ufunc, method)(*own, **options)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return function(*[IMAGES if isinstance(one, Liar) else one for one in inputs], **options)


def test_an_array_that_lies_is_measured_as_it_is() -> None:
    lying = np.ascontiguousarray(1 - np.round(IMAGES)).view(Liar)
    assert np.abs(IMAGES - lying).max() == 0
    with pytest.raises(RefusedImages, match="left the linf ball"):
        check(IMAGES, lying, "linf", EPSILON)


@pytest.mark.parametrize(
    ("adversarial", "norm", "said"),
    [
        (moved(EPSILON + 1e-5), "linf", "left the linf ball of 0.0313725 in 4 of 4"),
        (moved(0.51 / np.sqrt(108)), "l2", "left the l2 ball"),
        (
            np.where(np.arange(4)[:, None, None, None] == 2, np.nan, IMAGES).astype(np.float32),
            "linf",
            "NaN .* in 1 of 4",
        ),
        (
            np.where(np.arange(4)[:, None, None, None] == 2, np.inf, IMAGES).astype(np.float32),
            "linf",
            "infinite values in 1",
        ),
        (IMAGES * 2, "linf", r"outside \[0,1\]"),
        (-IMAGES, "linf", r"outside \[0,1\]"),
        (IMAGES[:3], "linf", r"returned \(3, 6, 6, 3\)"),
        (IMAGES.astype(np.float64), "linf", "float64"),
        (None, "linf", "an object of type NoneType, not an array of images"),
    ],
)
def test_what_is_refused(adversarial: np.ndarray, norm: str, said: str) -> None:
    with pytest.raises(RefusedImages, match=said):
        check(IMAGES, adversarial, norm, {"linf": EPSILON, "l2": 0.5}[norm])
