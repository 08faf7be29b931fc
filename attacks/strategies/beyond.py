"""Strategies that the paper does not have; `--attack everything` runs them, `all` does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras

from attacks.parts.engine import positive
from attacks.strategies import surrogates
from attacks.strategies.averages import averaged
from attacks.strategies.bypass import BYPASS, bypassed
from bench.api import Defence, Knowledge, ModelSource, Source, SourceDescription, Strategy, attacker_key, kind_of


@dataclasses.dataclass(frozen=True)
class PbaEnsembleSettings:
    """How many bypasses, and of which shapes."""

    inits: int = 2
    """Of the defence's own bypass."""
    kernels: tuple[int, ...] = (1, 5)
    """The sizes of further bypasses, each one convolution."""

    def __post_init__(self) -> None:
        positive(self, inits=1)


class PbaEnsemble(Strategy):
    """Several bypasses as one: other initial weights and other kernels, the mean of their logits."""

    Settings = PbaEnsembleSettings
    in_all = False
    beyond = True
    label = "Bypass ensemble"
    meaning = "learn several stand-ins, and attack through all of them"
    place = 60

    def sources(self, defence: Defence) -> Sequence[str]:
        return ["bypass-ensemble"] if defence.keyed else []

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        members = (BYPASS,) * (self.settings.inits + len(self.settings.kernels))
        return SourceDescription(source, meaning="several bypasses attacked as one", place=90, members=members)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        own = [bypassed(knowledge, _own(knowledge), seed) for seed in range(self.settings.inits)]
        others = [bypassed(knowledge, _convolution(knowledge, size)) for size in self.settings.kernels]
        return ModelSource(source, averaged([*own, *others]))


def _own(knowledge: Knowledge) -> Callable[[], keras.Model]:
    return lambda: knowledge.defence.bypass(knowledge.shape)


def _convolution(knowledge: Knowledge, size: int) -> Callable[[], keras.Model]:
    channels = knowledge.defence.output_shape(knowledge.shape)[2]
    layers = keras.layers
    return lambda: keras.Sequential(
        [keras.Input(knowledge.shape), layers.Conv2D(channels, size, padding="same", name="bypass")]
    )


class Adapter(Strategy):
    """The transform under an attacker's key, then a trained 1×1 convolution, then the defended classifier."""

    in_all = False
    beyond = True
    label = "Adapter"
    meaning = "use an attacker's key, and learn to make up for it"
    place = 70

    def sources(self, defence: Defence) -> Sequence[str]:
        return ["adapter:1"] if defence.keyed else []

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        meaning = "the transform under an attacker's key, a learned adapter, then the defended classifier"
        return SourceDescription(kind_of(source), meaning=meaning, place=100)

    def builds(self, defence: Defence, source: str) -> bool:
        return defence.keyed and surrogates.number_of("adapter", source) is not None

    def build(self, source: str, knowledge: Knowledge) -> Source:
        number = surrogates.number_of("adapter", source)
        assert number is not None
        key = attacker_key(number)
        shape = knowledge.defence.output_shape(knowledge.shape)

        def transformed(images: Any) -> Any:
            return knowledge.defence.transform(images, key, knowledge.state)

        def front() -> keras.Model:
            layer = keras.layers.Dense(shape[2], kernel_initializer="identity", name="adapter")  # of each pixel alone
            return keras.Sequential([keras.Input(shape), layer])

        return ModelSource(source, bypassed(knowledge, front, number, transformed, "adapter"))


class Expectation(Strategy):
    """The expectation over attacker keys: the mean of the logits of models trained under two of them."""

    in_all = False
    beyond = True
    label = "Expectation"
    meaning = "average over attacker keys"
    place = 80

    def sources(self, defence: Defence) -> Sequence[str]:
        return ["expectation:2"] if defence.keyed else []

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        meaning = "the mean over models trained under several attacker keys"
        members = surrogates.names(surrogates.SURROGATE, surrogates.number_of("expectation", source) or 0)
        return SourceDescription(kind_of(source), meaning=meaning, place=110, members=tuple(members))

    def builds(self, defence: Defence, source: str) -> bool:
        return defence.keyed and surrogates.number_of("expectation", source) is not None

    def build(self, source: str, knowledge: Knowledge) -> Source:
        count = surrogates.number_of("expectation", source)
        assert count is not None
        members = [surrogates.surrogate(knowledge, number).logits for number in range(1, count + 1)]
        return ModelSource(source, averaged(members))
