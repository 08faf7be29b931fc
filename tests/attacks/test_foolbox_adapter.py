"""Foolbox's attacks as engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.api import UsageError
from tests.attacks.conftest import a_batch
from tests.attacks.test_balls import distance
from tests.attacks.test_engines import ignore, rows_of

pytest.importorskip("foolbox")

from attacks.engines import foolbox_adapter


@pytest.mark.parametrize(
    ("name", "norm", "epsilon"),
    [
        ("LinfDeepFoolAttack", "linf", 0.03),
        ("LinfPGD", "linf", 0.03),
        ("L2PGD", "l2", 0.4),
        ("L2DeepFoolAttack", "l2", 0.4),
        ("DDNAttack", "l2", 0.4),
    ],
)
def test_a_foolbox_attack_is_an_engine(name: str, norm: str, epsilon: float, source: Any, network: Any) -> None:
    engine = foolbox_adapter.engine(f"foolbox:{name}")()
    batch = a_batch(network, count=3, norm=norm, epsilon=epsilon)
    result = engine.run(source, batch, ignore)
    assert result.success.any()
    assert distance(norm, result.images, batch.images).max() <= epsilon + 1e-6
    assert (result.queries > 1).all()
    rows = np.array([2, 0])
    again = engine.run(source, rows_of(batch, rows, 1), ignore)
    for column in ("images", "success", "margin", "restart", "queries"):
        np.testing.assert_array_equal(getattr(again, column), getattr(result, column)[rows], err_msg=column)


def test_names_that_are_not_there_and_norms_that_do_not_fit_are_refused(source: Any, network: Any) -> None:
    with pytest.raises(UsageError, match="did you mean foolbox:LinfDeepFoolAttack"):
        foolbox_adapter.engine("foolbox:LinfDeepFool")
    with pytest.raises(UsageError, match="LinfPGD works in the norm of order inf: it has no l2 form"):
        foolbox_adapter.engine("foolbox:LinfPGD")().run(source, a_batch(network, norm="l2"), ignore)


def test_the_description_names_the_attack() -> None:
    assert str(foolbox_adapter.engine("foolbox:LinfPGD").__doc__).startswith("Foolbox's LinfPGD: ")
