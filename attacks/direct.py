"""Sources of keyless defences: the defended model itself, which anybody can compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from attacks.sources import ModelSource
from bench.api import Defence, Knowledge, Source, Strategy

SELF = "self"


class _Direct(Strategy):
    """What both have in common; they differ in the defences they apply to."""

    applies_to_gradient: ClassVar[str]

    def sources(self, defence: Defence) -> Sequence[str]:
        return [SELF] if not defence.keyed and defence.gradient == self.applies_to_gradient else []

    def refusal(self, defence: Defence, source: str) -> str | None:
        if source == SELF and defence.keyed:
            return "the defended model itself can only be computed with the private key"
        return None

    def build(self, source: str, knowledge: Knowledge) -> Source:
        def forward(images):  # type: ignore[no-untyped-def]
            return knowledge.classifier(knowledge.defence.transform(images, None, knowledge.state), training=False)

        return ModelSource(SELF, forward, exact=True)


class Standard(_Direct):
    """The usual white-box attack, straight through a differentiable keyless defence."""

    applies_to_gradient = "exact"


class Bpda(_Direct):
    """The defence itself forward and its BPDA stand-in backward, where it has no useful gradient."""

    applies_to_gradient = "bpda"
