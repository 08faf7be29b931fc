"""PBA, the paper's attack: a trainable map in place of the transform, learned through the frozen classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from bench.api import Defence, Knowledge, ModelSource, Source, SourceDescription, Strategy

BYPASS = "bypass"


class Pba(Strategy):
    """Parametric bypass: the defended classifier behind a small map, trained to stand for the transform."""

    label = "Bypass (PBA)"
    meaning = "learn a stand-in for the transform, and attack the classifier through it"
    place = 30

    def sources(self, defence: Defence) -> Sequence[str]:
        return [BYPASS] if defence.keyed else []

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        meaning = "the defended classifier itself, reached past the transform by a learned stand-in (PBA)"
        return SourceDescription(BYPASS, meaning=meaning, place=60, through=("bypass",), recipes=(BYPASS,))

    def builds(self, defence: Defence, source: str) -> bool:
        return source == BYPASS

    def build(self, source: str, knowledge: Knowledge) -> Source:
        return ModelSource(source, bypassed(knowledge, lambda: knowledge.defence.bypass(knowledge.shape)))


def bypassed(
    knowledge: Knowledge, front: Callable[[], keras.Model], seed: int = 0, before: Any = None, role: str = BYPASS
) -> Callable[[Any], Any]:
    """The classifier behind a trained front: images (B×H×W×3) to logits."""
    model = trained_front(knowledge, front, seed, before, role)
    read = before or (lambda images: images)
    return lambda images: knowledge.classifier(model(read(images), training=False), training=False)


def trained_front(
    knowledge: Knowledge, front: Callable[[], keras.Model], seed: int = 0, before: Any = None, role: str = BYPASS
) -> keras.Model:
    """A front trained to stand for the transform, through the classifier, whose batch statistics stay frozen."""
    model = fresh(front, seed)
    knowledge.workshop.front(
        role, model, lambda inputs: knowledge.classifier(inputs, training=False), before, {"seed": seed}
    )
    return model


def fresh(front: Callable[[], keras.Model], seed: int) -> keras.Model:
    """A new model whose initial weights depend on the seed alone."""
    keras.utils.set_random_seed(seed)
    return front()
