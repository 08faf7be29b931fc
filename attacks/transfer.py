"""Models of the attacker's own, whose adversarial images may carry over to the defended model."""

from __future__ import annotations

from collections.abc import Sequence

from attacks.sources import ModelSource
from bench.api import Defence, Knowledge, Source, Strategy

NOMINAL = "nominal"


class Transfer(Strategy):
    """Transfer from models the attacker trains: the same network on plain RGB."""

    def sources(self, defence: Defence) -> Sequence[str]:
        return [NOMINAL] if defence.keyed else []

    def build(self, source: str, knowledge: Knowledge) -> Source:
        trained = knowledge.workshop.classifier("none", {})

        def forward(images):  # type: ignore[no-untyped-def]
            return trained.classifier(trained.defence.transform(images, None, trained.state), training=False)

        return ModelSource(source, forward)
