"""The order of attacks on survivors: greedy by what was measured, and a pure function of the plan."""

from __future__ import annotations

import numpy as np
import pytest

from bench import order, plan, spec
from bench.order import Measured
from bench.plan import Pair

ROWS = (
    Measured("linac", "linf", "pgd", "bypass", "bypass", 0.1, 0.5, 0.5),
    Measured("linac", "linf", "mt", "surrogate:2", "surrogate", 0.5, 0.6, 0.2),
    Measured("linac", "linf", "pgd", "nominal", "nominal", 0.1, 0.1, 0.2),
    Measured("jpeg-23", "linf", "mt", "bypass", "bypass", 0.1, 0.9, 0.1),
    Measured("jpeg-23", "linf", "pgd", "bypass", "bypass", 0.4, 0.4, 0.1),
)


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "table", lambda: ROWS)


def pairs(defence: str) -> list[Pair]:
    return plan.requested(spec.resolve("laptop"), defence, ["all"])


def names(defence: str, norm: str, chosen: list[Pair]) -> list[str]:
    return [pair.name for pair in order.of(defence, norm, chosen)]


def test_what_was_measured_comes_first_and_what_is_outside_last() -> None:
    found = names("linac", "linf", pairs("linac"))
    assert found[0] == "pgd@bypass"
    assert set(found[1:3]) == {"mt@surrogate:1", "mt@surrogate:2"}, "alike"
    assert found[3] == "pgd@nominal"
    assert set(found[-2:]) == {"pgd@key-leaked", "square@query"}
    assert sorted(found) == sorted(pair.name for pair in pairs("linac"))


def test_the_order_of_the_plan_decides_where_nothing_was_measured() -> None:
    plain = [pair.name for pair in pairs("linac")]
    assert names("linac", "l2", pairs("linac")) == plain
    known = {"pgd@bypass", "mt@surrogate:1", "mt@surrogate:2", "pgd@nominal"}
    assert names("linac", "linf", pairs("linac"))[4:] == [name for name in plain if name not in known]


def test_another_defence_goes_by_the_rates_elsewhere() -> None:
    found = names("block-shuffle", "linf", pairs("block-shuffle"))
    # Per second: mt@bypass 9; pgd@bypass 5 and 1, in the mean 3; mt on surrogates is not among its cells; pgd@nominal 1.
    assert found[:3] == ["mt@bypass", "pgd@bypass", "pgd@nominal"]


def test_what_is_expected_to_stand() -> None:
    ordered = order.of("linac", "linf", pairs("linac"))
    shares = order.left_before("linac", "linf", ordered)
    assert shares[:4] == [1.0, 0.5, 0.2, 0.2]
    assert shares == sorted(shares, reverse=True)
    assert set(order.left_before("linac", "l2", ordered)) == {1.0}


def test_the_cheapest_takes_what_breaks_most_per_second_of_what_is_left() -> None:
    broken = np.array([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]], bool)
    right = np.array([1, 1, 1, 1, 1, 0], bool)
    found = order.cheapest(broken, right, np.array([1.0, 2.0, 1.5, 0.1]))
    # 3 per second; then 1 / 1.5 against 1 / 2; what breaks nothing that is right comes last.
    assert [cell for cell, _ in found] == [0, 2, 1, 3]
    assert [left for _, left in found] == pytest.approx([2 / 5, 1 / 5, 0, 0])


def test_the_table_that_ships_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert all(row.seconds > 0 and 0 <= row.left <= 1 for row in order.table())
