"""Strategies that the paper does not have; `--attack everything` runs them, `all` does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras

from attacks.parts.engine import positive
from attacks.strategies import surrogates
from attacks.strategies.bypass import bypassed
from attacks.strategies.ensemble import averaged
from bench.api import Defence, Knowledge, ModelSource, Source, Strategy, attacker_key


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

    def sources(self, defence: Defence) -> Sequence[str]:
        return ["bypass-ensemble"] if defence.keyed else []

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

    def sources(self, defence: Defence) -> Sequence[str]:
        return ["adapter:1"] if defence.keyed else []

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

    def sources(self, defence: Defence) -> Sequence[str]:
        return ["expectation:2"] if defence.keyed else []

    def builds(self, defence: Defence, source: str) -> bool:
        return defence.keyed and surrogates.number_of("expectation", source) is not None

    def build(self, source: str, knowledge: Knowledge) -> Source:
        count = surrogates.number_of("expectation", source)
        assert count is not None
        members = [surrogates.surrogate(knowledge, number).logits for number in range(1, count + 1)]
        return ModelSource(source, averaged(members))
