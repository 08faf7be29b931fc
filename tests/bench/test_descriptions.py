"""What is stored of attacks and sources besides their settings: read back, and safe to read from anybody's database."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import plan, registry
from bench.api import LAST_PLACE
from bench.store import about, descriptions


def stored(said: about.About) -> dict[str, Any]:
    """What comes back from the column."""
    return about.from_json(about.to_json(said))


@pytest.mark.parametrize("name", sorted(registry.engine_classes()))
def test_every_engine_is_read_back_as_it_was_stored(name: str) -> None:
    engine = registry.engine(name, {})
    found = descriptions.read_attack(name, stored(descriptions.of_engine(name, engine)))
    assert (found.label, found.meaning, found.place) == (name, engine.meaning, engine.place)
    everything = {name: engine, **engine.parts}
    assert found.gradient_free == tuple(n for n, part in everything.items() if not part.needs_gradient)


def test_every_source_is_read_back_as_it_was_stored() -> None:
    choice = plan.Choice(strategies={"transfer": {"surrogates": 2}}, own_models=("user:mine",), guess=True)
    for pair in plan.pairs(["everything"], "linac", registry.defence("linac", {}), choice):
        strategy = registry.strategy_classes()[pair.strategy]
        said = descriptions.of_source(pair.description, pair.strategy, strategy)
        found = descriptions.read_source(pair.source, pair.strategy, stored(said))
        assert (found.kind, found.meaning, found.place) == (
            pair.description.kind,
            pair.description.meaning,
            pair.description.place,
        )
        assert (found.members, found.through) == (pair.description.members, pair.description.through)
        assert (found.strategy_label, found.strategy_meaning) == (strategy.label, strategy.meaning)
        assert found.meaning
        assert found.strategy_meaning


def test_every_built_in_says_what_it_is() -> None:
    for name, plugin in {**registry.engine_classes(), **registry.strategy_classes()}.items():
        assert plugin.meaning, name
    for name, strategy in registry.strategy_classes().items():
        assert strategy.label, name
        assert strategy.place < LAST_PLACE, name


def test_a_row_of_an_older_database_goes_by_its_names() -> None:
    attack, source = descriptions.read_attack("pgd", {}), descriptions.read_source("surrogate:3", "transfer", {})
    assert (attack.label, attack.meaning, attack.place, attack.gradient_free) == ("pgd", "", LAST_PLACE, ())
    assert (source.kind, source.label, source.strategy_label, source.place) == (
        "surrogate",
        "surrogate",
        "transfer",
        LAST_PLACE,
    )


values = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.lists(st.text())
fields = st.sampled_from(["label", "meaning", "place", "gradient_free", "kind", "members", "through", "strategy_place"])


@given(st.dictionaries(fields, values))
def test_whatever_another_database_may_hold_is_read(said: dict[str, Any]) -> None:
    found = stored(said)
    attack, source = descriptions.read_attack("pgd", found), descriptions.read_source("bypass", "pba", found)
    assert attack.label
    assert source.kind
    assert isinstance(attack.place, int)
    assert all(isinstance(name, str) for name in (*attack.gradient_free, *source.members, *source.through))
