"""Models under keys of the attacker's own: which keys, and the names of the sources made with them."""

from __future__ import annotations

import numpy as np

from attacks.parts.sources import ModelSource
from bench.api import Knowledge, TrainedClassifier

SURROGATE = "surrogate"
RECONSTRUCTION = "reconstruction"

# The keys that the paper trained its surrogates with: the ten best of its key search (its table 4).
PAPER_KEYS = (
    1383227977468296715,
    -3328443931658504707,
    -127094507362684985,
    -7808219206569127925,
    -8772667224621836765,
    -70640792831170485,
    8263151932495004089,
    -4594861196100637268,
    -6520968232434877967,
    -8722766234183220599,
)


def attacker_key(number: int) -> int:
    """The attacker's key of this number, from 1: the paper's ten, then any others."""
    if number <= len(PAPER_KEYS):
        return PAPER_KEYS[number - 1]
    bounds = np.iinfo(np.int64)
    return int(np.random.default_rng(number).integers(bounds.min, bounds.max, endpoint=True))


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}:{number}" for number in range(1, count + 1)]


def number_of(kind: str, source: str) -> int | None:
    """3 for surrogate:3; None if it is no source of this kind."""
    name, colon, number = source.partition(":")
    return int(number) if name == kind and colon and number.isdecimal() and int(number) > 0 else None


def surrogate(knowledge: Knowledge, number: int) -> TrainedClassifier:
    """The defence trained under an attacker's key."""
    settings = vars(knowledge.defence.settings)
    return knowledge.workshop.classifier(knowledge.defence_name, settings, attacker_key(number), SURROGATE)


def reconstruction(knowledge: Knowledge, number: int) -> TrainedClassifier:
    """The variant of the defence that gives the image back, trained under an attacker's key."""
    settings = knowledge.defence.reconstruction()
    assert settings is not None
    return knowledge.workshop.classifier(knowledge.defence_name, settings, attacker_key(number), RECONSTRUCTION)


def as_source(name: str, trained: TrainedClassifier) -> ModelSource:
    return ModelSource(name, trained.logits)
