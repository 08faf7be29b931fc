"""Attacks that compute with a key: one the attacker guessed, or, outside the threat model, the private one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from attacks.strategies.bypass import trained_front
from bench.api import BenchError, Defence, Knowledge, ModelSource, Source, SourceDescription, Strategy

GUESSED, LEAKED, LEAKED_BYPASS, QUERY = "guessed-key", "key-leaked", "key-leaked-bypass", "query"


def _transformed(knowledge: Knowledge) -> Any:
    """The defence under the key at hand: images to what the classifier reads."""
    if knowledge.guess is None:
        raise BenchError("there is no key to compute with: give one with --key-guess FILE")
    return lambda images: knowledge.defence.transform(images, knowledge.guess, knowledge.state)


def _defended(knowledge: Knowledge) -> Any:
    transformed = _transformed(knowledge)
    return lambda images: knowledge.classifier(transformed(images), training=False)


class GuessedKey(Strategy):
    """The defended classifier under a key the attacker has found ('bench keysearch'), given with --key-guess."""

    needs_guess = True
    label = "Guessed key"
    meaning = "search for the key first, then attack with what was found"
    place = 100

    def sources(self, defence: Defence) -> Sequence[str]:
        return [GUESSED] if defence.keyed else []

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        meaning = "the defended classifier under a key that the attacker has found"
        return SourceDescription(source, meaning=meaning, place=120, trained=False)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        return ModelSource(source, _defended(knowledge))


class _Outside(Strategy):
    """What only somebody inside has; its first source is what its name means."""

    in_all = False
    needs_key = True
    names: Sequence[str]
    reason: str

    def sources(self, defence: Defence) -> Sequence[str]:
        return self.names[:1] if defence.keyed else []

    def builds(self, defence: Defence, source: str) -> bool:
        return source in self.names and defence.keyed

    def refusal(self, defence: Defence, source: str) -> str | None:
        return self.reason if source in self.names and defence.keyed else None


class KeyLeaked(_Outside):
    """Outside the threat model: the private key is out. Exact forward pass; the defence's gradient, or the bypass's."""

    label = "Leaked key"
    meaning = "attack with the private key in hand"
    place = 110
    names = (LEAKED, LEAKED_BYPASS)
    reason = "it computes with the private key"

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        if source == LEAKED:
            meaning = "the defended model with its private key: outside the threat model"
            return SourceDescription(source, meaning=meaning, place=130, trained=False)
        meaning = "forward with the private key, backward through the bypass: outside the threat model"
        return SourceDescription(source, meaning=meaning, place=140, through=("defence", "bypass"), trained=False)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        if source == LEAKED:
            return ModelSource(source, _defended(knowledge), exact=True)
        front = trained_front(knowledge, lambda: knowledge.defence.bypass(knowledge.shape))
        transformed = _transformed(knowledge)

        def forward(images: tf.Tensor) -> tf.Tensor:
            stand_in = front(images, training=False)
            # The value of the transform, the gradient of its stand-in.
            return knowledge.classifier(tf.stop_gradient(transformed(images) - stand_in) + stand_in, training=False)

        return ModelSource(source, forward, exact=True)


class Query(_Outside):
    """Outside the threat model: questions to the defended model itself, which answers with logits; queries are counted."""

    label = "Queries"
    meaning = "ask the defended model itself, and learn from its answers"
    place = 120
    names = (QUERY,)
    has_gradient = False
    reason = "the attacker sees no output of the defended model"

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        meaning = "the defended model as a service that answers with logits: outside the threat model"
        return SourceDescription(source, meaning=meaning, place=150, trained=False)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        return ModelSource(source, _defended(knowledge), exact=True, has_gradient=False)
