"""Models under keys of the attacker's own: which keys, and the names of the sources made with them."""

from __future__ import annotations

from bench.api import Knowledge, ModelSource, SourceDescription, TrainedClassifier, attacker_key

SURROGATE = "surrogate"
WARM = "surrogate-warm"
RECONSTRUCTION = "reconstruction"


def describe(kind: str) -> SourceDescription:
    """What a surrogate or a reconstruction is."""
    if kind == SURROGATE:
        meaning = "the same defence, trained by the attacker with keys of their own"
        return SourceDescription(kind, meaning=meaning, place=40, recipes=(kind,))
    if kind == WARM:
        meaning = "a surrogate whose training starts from the defended classifier's weights, which attackers know; ours"
        return SourceDescription(kind, meaning=meaning, place=41, recipes=(kind,))
    meaning = "the defence turned into a reconstruction of the image, with attacker keys (BPDA)"
    return SourceDescription(kind, meaning=meaning, place=50, through=("reconstruction",), recipes=(kind,))


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}:{number}" for number in range(1, count + 1)]


def number_of(kind: str, source: str) -> int | None:
    """3 for surrogate:3; None if it is no source of this kind."""
    name, colon, number = source.partition(":")
    return int(number) if name == kind and colon and number.isdecimal() and int(number) > 0 else None


def surrogate(knowledge: Knowledge, number: int, kind: str = SURROGATE) -> TrainedClassifier:
    """The defence trained under an attacker's key."""
    settings = vars(knowledge.defence.settings)
    return knowledge.workshop.classifier(knowledge.defence_name, settings, attacker_key(number), kind)


def reconstruction(knowledge: Knowledge, number: int) -> TrainedClassifier:
    """The variant of the defence that gives the image back, trained under an attacker's key."""
    settings = knowledge.defence.reconstruction()
    assert settings is not None
    return knowledge.workshop.classifier(knowledge.defence_name, settings, attacker_key(number), RECONSTRUCTION)


def as_source(name: str, trained: TrainedClassifier) -> ModelSource:
    return ModelSource(name, trained.logits)
