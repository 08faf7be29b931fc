"""The examples of docs/plugins.md, run as they are printed."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bench.api import Batch, Finding, HealthBudget, ModelSource
from bench.executors.base import Limits
from bench.testing import check_engine

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
IMAGES = np.random.default_rng(0).uniform(size=(3, 8, 8, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What all the page's Python gives, as one module."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 9
    path = tmp_path_factory.mktemp("page") / "plugins_page.py"
    path.write_text("\n".join(blocks))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield vars(module)
    del sys.modules[path.stem]


def test_each_keeps_its_contract(page: dict[str, Any]) -> None:
    page["test_the_contract"]()


def test_a_family_makes_engines_by_name(page: dict[str, Any]) -> None:
    made = page["engine"]("noise:0.5")
    assert made.__doc__ == "Noise at 0.5 times the size of the ball."
    check_engine(made, in_norms=("linf",))


def test_the_probe_counts(page: dict[str, Any]) -> None:
    source = ModelSource("always-1", lambda images: tf.one_hot(tf.ones(tf.shape(images)[0], tf.int32), 4))
    batch = Batch(IMAGES, np.array([1, 2, 1], np.int32), np.zeros((3, 2), np.int32), "linf", 0.1)
    assert page["WrongAnyway"]().of_source(source, batch, HealthBudget()) == {"wrong-without-an-attack": Finding(1, 3)}


def test_the_ball_of_the_norm_is_sound(page: dict[str, Any]) -> None:
    norm = page["Bytes"]()
    ball, seeds = norm.ball(), np.arange(6, dtype=np.int32).reshape(3, 2)
    far = ball.random_start(tf.constant(IMAGES), tf.constant(seeds), tf.constant(4.0)).numpy()
    assert 3 < norm.distance(IMAGES, far).max() <= 4 + 1e-4
    moved = ball.project(IMAGES + 9 * ball.steepest(tf.constant(IMAGES - 0.5)), IMAGES, tf.constant(4.0)).numpy()
    assert norm.distance(IMAGES, moved).max() == pytest.approx(4, abs=1e-4)


def test_the_executor_has_one_worker(page: dict[str, Any]) -> None:
    executor = page["OneByOne"]().start("one-by-one", Limits(workers=7), print)
    assert vars(executor)["_limits"] == Limits(workers=1)
    executor.close()
