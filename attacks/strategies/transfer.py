"""Models of the attacker's own, whose adversarial images may carry over to the defended model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from attacks.parts.engine import positive
from attacks.strategies import surrogates
from bench.api import Defence, Knowledge, ModelSource, Source, SourceDescription, Strategy, TrainedClassifier, kind_of

NOMINAL = "nominal"
ADVERSARIAL = ("at-linf", "at-l2")

_PLAIN = {
    NOMINAL: (10, "the attacker's own network without any defence"),
    "at-linf": (20, "the attacker's own network, adversarially trained in L∞"),
    "at-l2": (30, "the attacker's own network, adversarially trained in L2"),
}
"""Networks on plain images: their places in tables, and what they are."""


@dataclasses.dataclass(frozen=True)
class TransferSettings:
    """Which of the attacker's models `all` means."""

    adversarial: bool = True
    """Whether to transfer from the two adversarially trained models."""
    surrogates: int = 0
    """From so many models trained with the defence, under keys of the attacker's own."""
    warm: int = 0
    """The same, but trained from the defended weights on, which the threat model gives; ours."""

    def __post_init__(self) -> None:
        positive(self, surrogates=0, warm=0)


class Transfer(Strategy):
    """Transfer from models the attacker trains: nominally, adversarially, or with the defence under other keys."""

    Settings = TransferSettings
    label = "Transfer"
    meaning = "make the image on a model of the attacker's own, and hope that it carries over"
    place = 10

    def sources(self, defence: Defence) -> Sequence[str]:
        if not defence.keyed:
            return []
        plain = [NOMINAL, *(ADVERSARIAL if self.settings.adversarial else ())]
        cold, warm = (self.settings.surrogates, self.settings.warm)
        return [*plain, *surrogates.names(surrogates.SURROGATE, cold), *surrogates.names(surrogates.WARM, warm)]

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        if source not in _PLAIN:
            return surrogates.describe(kind_of(source))
        place, meaning = _PLAIN[source]
        return SourceDescription(source, meaning=meaning, place=place, through=(), recipes=(source,))

    def builds(self, defence: Defence, source: str) -> bool:
        return source in (NOMINAL, *ADVERSARIAL) or (_number(source) is not None and defence.keyed)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        number = _number(source)
        if number is None:
            return surrogates.as_source(source, plain(source, knowledge))
        return surrogates.as_source(source, surrogates.surrogate(knowledge, number, kind_of(source)))


def _number(source: str) -> int | None:
    """3 for surrogate:3 and surrogate-warm:3."""
    found = (surrogates.number_of(kind, source) for kind in (surrogates.SURROGATE, surrogates.WARM))
    return next((number for number in found if number is not None), None)


def plain(source: str, knowledge: Knowledge) -> TrainedClassifier:
    """The same network on plain RGB: nominal, at-linf or at-l2."""
    return knowledge.workshop.classifier("none", {}, role="" if source == NOMINAL else source)


class OwnModels(Strategy):
    """Transfer from models the user brings with --source FILE.keras."""

    user_models = True
    label = "Given models"
    meaning = "attack models that the user gave"
    place = 90

    def sources(self, defence: Defence) -> Sequence[str]:
        return []

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        meaning = "a model that the user gave"
        return SourceDescription(kind_of(source), meaning=meaning, place=160, through=(), trained=False)

    def builds(self, defence: Defence, source: str) -> bool:
        return source.startswith("user:")

    def build(self, source: str, knowledge: Knowledge) -> Source:
        model = knowledge.workshop.user_model(source)
        return ModelSource(source, lambda images: model(images, training=False))
