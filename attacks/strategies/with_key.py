"""Attacks that compute with a key: one the attacker guessed, or, outside the threat model, the private one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from attacks.strategies.bypass import trained_front
from bench.api import BenchError, Defence, Knowledge, ModelSource, Source, Strategy

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

    def sources(self, defence: Defence) -> Sequence[str]:
        return []

    def builds(self, defence: Defence, source: str) -> bool:
        return source == GUESSED and defence.keyed

    def build(self, source: str, knowledge: Knowledge) -> Source:
        return ModelSource(source, _defended(knowledge))


class _Outside(Strategy):
    """What only somebody inside has."""

    in_all = False
    needs_key = True
    names: Sequence[str]
    reason: str

    def sources(self, defence: Defence) -> Sequence[str]:
        return []

    def refusal(self, defence: Defence, source: str) -> str | None:
        return self.reason if source in self.names and defence.keyed else None


class KeyLeaked(_Outside):
    """Outside the threat model: the private key is out. Exact forward pass; the defence's gradient, or the bypass's."""

    names = (LEAKED, LEAKED_BYPASS)
    reason = "it computes with the private key"

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

    names = (QUERY,)
    has_gradient = False
    reason = "the attacker sees no output of the defended model"

    def build(self, source: str, knowledge: Knowledge) -> Source:
        return ModelSource(source, _defended(knowledge), exact=True, has_gradient=False)
