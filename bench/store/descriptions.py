"""What attacks and sources say of themselves, stored with their rows: for pages and doubts, and in no fingerprint.

A row of an older database, or one whose plug-in says nothing, goes by its bare name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sized
from typing import Any

from bench.api import LAST_PLACE, Engine, SourceDescription, Strategy, kind_of
from bench.store.about import About


@dataclasses.dataclass(frozen=True)
class AttackAbout:
    """What an engine says of itself."""

    label: str
    meaning: str = ""
    place: int = LAST_PLACE
    gradient_free: tuple[str, ...] = ()
    """The names of what uses no gradient, of the engine and its parts."""
    reduced: str = ""
    """How much less it tries than it was published with: '40 of 100 steps'; nothing where it is not known."""


@dataclasses.dataclass(frozen=True)
class SourceAbout:
    """What a strategy says of one of its sources, and of itself."""

    kind: str
    label: str
    strategy_label: str
    meaning: str = ""
    place: int = LAST_PLACE
    members: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    """What a gradient passes through besides a network."""
    strategy_meaning: str = ""
    strategy_place: int = LAST_PLACE


def of_engine(name: str, engine: Engine) -> About:
    """An engine, as it is stored with its attack's row."""
    everything = {name: engine, **engine.parts}
    return {
        "label": engine.label or name,
        "meaning": engine.explanation(),
        "place": engine.place,
        "gradient_free": [own for own, part in everything.items() if not part.needs_gradient],
        "reduced": reduced(engine),
    }


def reduced(engine: Engine) -> str:
    """What is less than published: '40 of 100 steps, 1 of 10 restarts'; nothing if all of it is there.

    A setting that is a list counts by its length.
    """
    published = type(engine).Settings()
    amounts = [(name, _amount(engine.settings, name), _amount(published, name)) for name in engine.budget]
    return ", ".join(f"{value:,} of {full:,} {name}" for name, value, full in amounts if value < full)


def _amount(settings: Any, name: str) -> int:
    value = getattr(settings, name)
    return len(value) if isinstance(value, Sized) else int(value)


def of_source(description: SourceDescription, strategy_name: str, strategy: type[Strategy]) -> About:
    """A source and its strategy, as they are stored with the source's row."""
    return {
        "kind": description.kind,
        "label": description.label or description.kind,
        "meaning": description.meaning or strategy.explanation(),
        "place": description.place,
        "members": list(description.members),
        "through": list(description.through),
        "strategy_label": strategy.label or strategy_name,
        "strategy_meaning": strategy.explanation(),
        "strategy_place": strategy.place,
    }


def read_attack(name: str, stored: Mapping[str, Any]) -> AttackAbout:
    """What is stored of an attack; another's database may hold anything, and what does not fit is left out."""
    about = _Fields(stored)
    return AttackAbout(
        label=about.text("label", name),
        meaning=about.text("meaning"),
        place=about.number("place"),
        gradient_free=about.texts("gradient_free"),
        reduced=about.text("reduced"),
    )


def read_source(name: str, strategy: str, stored: Mapping[str, Any]) -> SourceAbout:
    """What is stored of a source of a strategy, read as `read_attack` does."""
    about = _Fields(stored)
    kind = about.text("kind", kind_of(name))
    return SourceAbout(
        kind=kind,
        label=about.text("label", kind),
        strategy_label=about.text("strategy_label", strategy),
        meaning=about.text("meaning"),
        place=about.number("place"),
        members=about.texts("members"),
        through=about.texts("through"),
        strategy_meaning=about.text("strategy_meaning"),
        strategy_place=about.number("strategy_place"),
    )


class _Fields:
    """A stored description, read field by field."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._stored = stored

    def text(self, name: str, otherwise: str = "") -> str:
        found = self._stored.get(name)
        return found if isinstance(found, str) and found else otherwise

    def number(self, name: str) -> int:
        found = self._stored.get(name)
        return found if isinstance(found, int) else LAST_PLACE

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._stored.get(name)
        return tuple(map(str, found)) if isinstance(found, list) else ()
