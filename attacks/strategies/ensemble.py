"""Several models attacked as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from attacks.strategies.transfer import ADVERSARIAL, NOMINAL, plain
from bench.api import Defence, Knowledge, ModelSource, Source, SourceDescription, Strategy, UsageError

ENSEMBLE = "ensemble"


def averaged(members: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The mean of the members' logits."""
    return lambda images: tf.add_n([member(images) for member in members]) / len(members)


@dataclasses.dataclass(frozen=True)
class EnsembleSettings:
    """Whose logits are averaged."""

    members: tuple[str, ...] = (NOMINAL, *ADVERSARIAL)
    """None at all turns the strategy off."""

    def __post_init__(self) -> None:
        if odd := [name for name in self.members if name not in (NOMINAL, *ADVERSARIAL)]:
            raise UsageError(
                f"ensemble: '{odd[0]}' cannot be a member; choose from {NOMINAL}, {', '.join(ADVERSARIAL)}"
            )


class Ensemble(Strategy):
    """Transfer from several of the attacker's models as one: the mean of their logits while attacking."""

    Settings = EnsembleSettings
    label = "Ensemble"
    meaning = "attack several own models as one"
    place = 50

    def sources(self, defence: Defence) -> Sequence[str]:
        return [ENSEMBLE] if defence.keyed and self.settings.members else []

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        meaning = "the attacker's plain networks attacked as one, by the mean of their logits"
        return SourceDescription(ENSEMBLE, meaning=meaning, place=80, members=self.settings.members)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        return ModelSource(source, averaged([plain(name, knowledge).logits for name in self.settings.members]))
