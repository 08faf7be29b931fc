"""Several models attacked as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from attacks.strategies.averages import Logits, evenly_averaged
from attacks.strategies.beyond import Adapter, Expectation, PbaEnsemble
from attacks.strategies.bpda import Bpda
from attacks.strategies.bypass import Pba
from attacks.strategies.transfer import ADVERSARIAL, NOMINAL, OwnModels, Transfer
from bench.api import Defence, Knowledge, ModelSource, Source, SourceDescription, Strategy, UsageError

ENSEMBLE = "ensemble"
MAKERS: tuple[type[Strategy], ...] = (Transfer, Bpda, Pba, PbaEnsemble, Adapter, Expectation, OwnModels)
"""The strategies whose sources can be members: those of keyed defences that are computed without any key of theirs."""


@dataclasses.dataclass(frozen=True)
class EnsembleSettings:
    """Which sources are attacked as one."""

    members: tuple[str, ...] = (NOMINAL, *ADVERSARIAL)
    """Names of sources, such as nominal, surrogate:1, bypass or user:mine; none at all turns the strategy off."""

    def __post_init__(self) -> None:
        if ENSEMBLE in self.members:
            raise UsageError(f"ensemble: '{ENSEMBLE}' cannot be a member of itself")


class Ensemble(Strategy):
    """Several sources as one (ours): while attacking, the mean of their logits, each over its own spread."""

    Settings = EnsembleSettings
    version = "2"  # since 2 the logits of a member are divided by their spread, and any source can be one
    in_all = False
    beyond = True
    label = "Ensemble"
    meaning = "attack several own models as one"
    place = 50

    def sources(self, defence: Defence) -> Sequence[str]:
        if not (defence.keyed and self.settings.members):
            return []
        for name in self.settings.members:
            maker(name, defence)
        return [ENSEMBLE]

    def builds(self, defence: Defence, source: str) -> bool:
        return source == ENSEMBLE and defence.keyed and bool(self.settings.members)

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        meaning = "several of the attacker's models attacked as one, by the mean of their logits, each over its spread"
        return SourceDescription(ENSEMBLE, meaning=meaning, place=80, members=self.settings.members)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        return ModelSource(source, evenly_averaged([member(name, knowledge) for name in self.settings.members]))


def maker(name: str, defence: Defence) -> Strategy:
    """The strategy that builds this member against a defence."""
    for strategy in (kind() for kind in MAKERS):
        if strategy.builds(defence, name):
            return strategy
    raise UsageError(
        f"ensemble: '{name}' cannot be a member here; give sources of this defence, such as {NOMINAL}, surrogate:1 or bypass"
    )


def member(name: str, knowledge: Knowledge) -> Logits:
    """A member's logits."""
    source = maker(name, knowledge.defence).build(name, knowledge)
    assert isinstance(source, ModelSource)
    return source.forward
