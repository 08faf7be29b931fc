"""The defended model of a keyless defence, which anybody can compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.api import Defence, Knowledge, ModelSource, Source, SourceDescription, Strategy

SELF = "self"


def refusal(defence: Defence, source: str) -> str | None:
    if source == SELF and defence.keyed:
        return "the defended model itself can only be computed with the private key"
    return None


def describe() -> SourceDescription:
    return SourceDescription(SELF, meaning="the defended model itself", place=70, trained=False, recipes=(SELF,))


def forward(knowledge: Knowledge) -> Callable[[Any], Any]:
    """The defence and its classifier: images (B×H×W×3) to logits."""
    return lambda images: knowledge.classifier(
        knowledge.defence.transform(images, None, knowledge.state), training=False
    )


def build(knowledge: Knowledge) -> Source:
    """The defence and its classifier, forward and backward."""
    return ModelSource(SELF, forward(knowledge), exact=True)


class Standard(Strategy):
    """The usual white-box attack, straight through a differentiable keyless defence."""

    label = "Standard"
    meaning = "attack the defended model directly, with everything known"
    place = 40

    def sources(self, defence: Defence) -> Sequence[str]:
        return [SELF] if not defence.keyed and defence.gradient == "exact" else []

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        return describe()

    def refusal(self, defence: Defence, source: str) -> str | None:
        return refusal(defence, source)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        return build(knowledge)
