"""What a request means, and what of it is left to do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import plan, registry
from bench.api import UsageError


@given(n=st.integers(1, 60), size=st.integers(1, 20), data=st.data())
def test_shards_cover_exactly_what_is_missing(n: int, size: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    done = list(zip(cuts[::2], cuts[1::2], strict=False))
    covered = np.zeros(n, int)
    for start, stop in plan.shards(n, done, size):
        assert 0 < stop - start <= size
        covered[start:stop] += 1
    for start, stop in done:
        covered[start:stop] += 1
    assert (covered >= 1).all()
    assert plan.shards(n, [*done, *plan.shards(n, done, size)], size) == []


def test_seeds_belong_to_the_example() -> None:
    whole = plan.example_seeds(0, "cell", 0, 20)
    assert np.array_equal(whole[7:12], plan.example_seeds(0, "cell", 7, 12))
    assert len(np.unique(whole, axis=0)) == 20
    assert not np.array_equal(whole, plan.example_seeds(1, "cell", 0, 20))
    assert not np.array_equal(whole, plan.example_seeds(0, "other", 0, 20))


def names(*requests: str, defence: str, outside: bool = False) -> set[str]:
    plugin = registry.create("defences", defence, {})
    return {pair.name for pair in plan.pairs(requests, defence, plugin, {}, outside)}


def test_requests() -> None:
    assert names("pgd", defence="none") == {"pgd@self"}
    assert names("pgd", defence="block-shuffle") >= {"pgd@nominal"}
    assert names("pgd@nominal", defence="block-shuffle") == {"pgd@nominal"}
    assert names("standard", defence="none") == {"pgd@self", "mt@self", "square@self", "aa@self"}
    assert names("bpda", defence="jpeg-23") == {"pgd@self", "mt@self", "square@self", "aa@self"}
    assert names("pgd", "pgd", "all", defence="none") == names("all", defence="none")


def test_settings_over_the_preset() -> None:
    plugin = registry.create("defences", "none", {})
    (pair,) = plan.pairs(["pgd[steps=7]"], "none", plugin, {"pgd": {"steps": 5, "restarts": 3}})
    assert (pair.settings.steps, pair.settings.restarts) == (7, 3)


def test_one_engine_with_two_settings_is_two_pairs() -> None:
    plugin = registry.create("defences", "none", {})
    assert len(plan.pairs(["pgd[steps=7]", "pgd[steps=8]", "pgd[steps=8]"], "none", plugin, {})) == 2


@pytest.mark.parametrize(
    ("request_", "defence", "said"),
    [
        ("pdg", "none", "unknown attack 'pdg': did you mean 'pgd'"),
        ("pgd@nominl", "block-shuffle", "unknown source 'nominl' against block-shuffle: did you mean 'nominal'"),
        ("pgd@self", "block-shuffle", "outside the threat model of block-shuffle: .*private key"),
        ("standard", "block-shuffle", "standard has no source against block-shuffle"),
        ("transfer@nominal", "block-shuffle", "transfer is a strategy"),
        ("pgd[steps=many]", "none", "steps is 'many'"),
        ("pgd[steps=0]", "none", "steps is 0"),
        ("pgd[rule=fast]", "none", "rule is"),
    ],
)
def test_requests_that_are_refused(request_: str, defence: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        names(request_, defence=defence)


def test_outside_the_threat_model_by_permission_only() -> None:
    plugin = registry.create("defences", "block-shuffle", {})
    (pair,) = plan.pairs(["pgd@self"], "block-shuffle", plugin, {}, True)
    assert not pair.inside_threat_model
