"""BPDA: the transform forward, a differentiable stand-in for it backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from attacks.parts.engine import positive
from attacks.strategies import direct, surrogates
from bench.api import Defence, Knowledge, Source, SourceDescription, Strategy


@dataclasses.dataclass(frozen=True)
class BpdaSettings:
    """Which sources `all` means against a keyed defence."""

    reconstructions: int = 0
    """So many models trained on what the defence's reconstruction gives back, under keys of the attacker's own."""

    def __post_init__(self) -> None:
        positive(self, reconstructions=0)


class Bpda(Strategy):
    """The transform forward, a stand-in backward: of a keyless defence itself, of a keyed one its reconstruction."""

    Settings = BpdaSettings
    label = "BPDA"
    meaning = "go forward through the transform, and backward through a simpler one"
    place = 20

    def sources(self, defence: Defence) -> Sequence[str]:
        if not defence.keyed:
            return [direct.SELF] if defence.gradient == "bpda" else []
        if defence.reconstruction() is None:
            return []
        return surrogates.names(surrogates.RECONSTRUCTION, self.settings.reconstructions)

    def builds(self, defence: Defence, source: str) -> bool:
        if surrogates.number_of(surrogates.RECONSTRUCTION, source) is not None:
            return defence.keyed and defence.reconstruction() is not None
        return source in self.sources(defence)

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        return direct.describe() if source == direct.SELF else surrogates.describe(surrogates.RECONSTRUCTION)

    def refusal(self, defence: Defence, source: str) -> str | None:
        return direct.refusal(defence, source)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        number = surrogates.number_of(surrogates.RECONSTRUCTION, source)
        if number is None:
            return direct.build(knowledge)
        return surrogates.as_source(source, surrogates.reconstruction(knowledge, number))
