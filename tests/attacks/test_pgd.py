"""PGD's own settings and choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attacks.engines.pgd import Pgd, PgdSettings, rates
from bench import registry, spec
from bench.api import UsageError
from tests.attacks.conftest import a_batch
from tests.attacks.test_engines import ignore


def test_the_rate_falls_at_half_and_three_quarters() -> None:
    found = rates(PgdSettings(steps=40), "adam", 8 / 255)
    np.testing.assert_allclose(found, [0.1] * 20 + [0.01] * 10 + [0.001] * 10, rtol=1e-6)
    sign = rates(PgdSettings(steps=4, step_size=0.25, schedule="drops"), "sign", 0.4)
    np.testing.assert_allclose(sign, [0.1, 0.1, 0.01, 0.001], rtol=1e-6)


def test_the_steepest_direction_slows_down_along_a_cosine_from_a_step_across_the_ball() -> None:
    found = rates(PgdSettings(steps=4), "sign", 0.5)
    np.testing.assert_allclose(found, [1.0, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5], rtol=1e-6)
    line = rates(PgdSettings(steps=4, schedule="linear", step_size=1.0), "sign", 1.0)
    np.testing.assert_allclose(line, [1, 0.75, 0.5, 0.25], rtol=1e-6)


def test_the_papers_preset_keeps_the_schedule_of_the_public_evaluation_code() -> None:
    paper = spec.resolve("paper")
    for name in ("pgd", "mt"):
        settings = registry.engine(name, paper.engines[name]).settings
        rate = rates(settings, "sign", 1.0)
        steps = settings.steps
        np.testing.assert_allclose(rate[[0, steps // 2 - 1, steps // 2, -1]], [0.5, 0.5, 0.05, 0.005], rtol=1e-6)
    assert registry.engine("aa", paper.engines["aa"]).settings.keep == "first-success"


def test_a_transfer_source_is_attacked_to_the_end_and_an_exact_one_until_it_gives_in(
    source: Any, exact_source: Any, network: Any
) -> None:
    batch = a_batch(network, epsilon=0.05)
    engine = Pgd(PgdSettings(steps=20, restarts=3))
    transfer, exact = engine.run(source, batch, ignore), engine.run(exact_source, batch, ignore)
    assert transfer.success.all()
    assert exact.success.all()
    assert (transfer.gradients == 60).all()
    assert (exact.gradients == 10).all()
    assert (transfer.margin <= exact.margin).all()


def test_more_restarts_and_more_iterates_to_choose_from_never_hurt(source: Any, network: Any) -> None:
    batch = a_batch(network, epsilon=0.02)
    margins = {}
    for restarts in (1, 3):
        for candidates in ("step", "restart"):
            engine = Pgd(PgdSettings(steps=10, restarts=restarts, candidates=candidates))
            margins[restarts, candidates] = engine.run(source, batch, ignore).margin
    assert (margins[3, "step"] <= margins[1, "step"]).all()
    assert (margins[3, "restart"] <= margins[1, "restart"]).all()
    assert (margins[3, "step"] <= margins[3, "restart"]).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "steps is 0: give at least 1"),
        ({"restarts": -1}, "restarts is -1: give at least 1"),
        ({"rule": "newton"}, "rule is 'newton': use one of auto, adam, sign"),
        ({"loss": "mse"}, "loss is 'mse': use one of margin, ce, dlr"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PgdSettings(**wrong)


def test_a_negative_epsilon_is_refused(source: Any, network: Any) -> None:
    with pytest.raises(UsageError, match="epsilon -1 is not a size"):
        Pgd().run(source, a_batch(network, epsilon=-1), ignore)
