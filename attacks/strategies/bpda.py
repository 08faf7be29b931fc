"""BPDA: the transform forward, a differentiable stand-in for it backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from attacks.parts.engine import positive
from attacks.strategies import direct, surrogates
from bench.api import Defence, Gradient, Knowledge, Loss, ModelSource, Source, SourceDescription, Strategy

SMOOTH, NOISE = "self-smooth", "self-noise"


@dataclasses.dataclass(frozen=True)
class BpdaSettings:
    """Which sources `all` means: of a keyed defence its reconstructions, of a keyless one the ways back through it."""

    reconstructions: int = 0
    """So many models trained on what the defence's reconstruction gives back, under keys of the attacker's own."""
    smooth: bool = True
    """Back through the differentiable form of a keyless defence too, where it has one. Ours: the paper has the identity."""
    noise: int = 4
    """The identity backward, averaged over so many noisy copies of the image; 0 leaves it out. Ours as well."""
    deviation: float = 0.02
    """The standard deviation of that noise, in units of a pixel value."""

    def __post_init__(self) -> None:
        positive(self, reconstructions=0, noise=0, deviation=0)


class Bpda(Strategy):
    """The transform forward, a stand-in backward: of a keyless defence itself, of a keyed one its reconstruction."""

    Settings = BpdaSettings
    label = "BPDA"
    meaning = "go forward through the transform, and backward through a simpler one"
    place = 20

    def sources(self, defence: Defence) -> Sequence[str]:
        if not defence.keyed:
            if defence.gradient != "bpda":
                return []
            smooth = [SMOOTH] if self.settings.smooth and has_smooth(defence) else []
            return [direct.SELF, *smooth, *([NOISE] if self.settings.noise else [])]
        if defence.reconstruction() is None:
            return []
        return surrogates.names(surrogates.RECONSTRUCTION, self.settings.reconstructions)

    def builds(self, defence: Defence, source: str) -> bool:
        if surrogates.number_of(surrogates.RECONSTRUCTION, source) is not None:
            return defence.keyed and defence.reconstruction() is not None
        if defence.keyed or defence.gradient != "bpda":
            return False
        return source == direct.SELF or (source == SMOOTH and has_smooth(defence)) or (source == NOISE)

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        if source == direct.SELF:
            return direct.describe()
        if source in _WAYS_BACK:
            place, meaning = _WAYS_BACK[source]
            return SourceDescription(
                source, meaning=meaning, place=place, answers_as=direct.SELF, trained=False, recipes=(direct.SELF,)
            )
        return surrogates.describe(surrogates.RECONSTRUCTION)

    def refusal(self, defence: Defence, source: str) -> str | None:
        return direct.refusal(defence, source)

    def build(self, source: str, knowledge: Knowledge) -> Source:
        if source == direct.SELF:
            return direct.build(knowledge)
        if source == SMOOTH:
            return ModelSource(source, _through_smooth(knowledge), exact=True)
        if source == NOISE:
            draws = max(self.settings.noise, 1)
            return AveragedGradient(source, direct.forward(knowledge), draws, self.settings.deviation)
        number = surrogates.number_of(surrogates.RECONSTRUCTION, source)
        assert number is not None
        return surrogates.as_source(source, surrogates.reconstruction(knowledge, number))


_WAYS_BACK = {
    SMOOTH: (71, "the defended model itself, backward through a differentiable form of its transform"),
    NOISE: (72, "the defended model itself, its backward pass averaged over noisy copies of the image"),
}
"""The defended model with other gradients than its own: their places in tables, and what they are."""


def has_smooth(defence: Defence) -> bool:
    """Whether a defence has a differentiable form."""
    return type(defence).smooth is not Defence.smooth


def _through_smooth(knowledge: Knowledge) -> Callable[[Any], Any]:
    """The value of the transform, the gradient of its differentiable form."""
    defence, state = knowledge.defence, knowledge.state

    def forward(images: tf.Tensor) -> tf.Tensor:
        smooth = defence.smooth(images, state)
        value = smooth + tf.stop_gradient(defence.transform(images, None, state) - smooth)
        return knowledge.classifier(value, training=False)

    return forward


class AveragedGradient(ModelSource):
    """The defended model; its gradient is the mean over noisy copies of the image, which steps of a transform even out.

    The noise is the same for every image and at every call, so that an image's gradient depends on nothing else.
    """

    def __init__(self, name: str, forward: Callable[[Any], Any], draws: int, deviation: float) -> None:
        super().__init__(name, forward, exact=True)
        self.draws, self.deviation = draws, deviation

    def gradient(self, loss: Loss, images: tf.Tensor, *labels: tf.Tensor) -> Gradient:
        shape = [self.draws, 1, *images.shape[1:]]
        noise = self.deviation * tf.random.stateless_normal(shape, (0, 1), alg="philox")
        here = super().gradient

        def add(number: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            noisy = tf.clip_by_value(images + noise[number], 0.0, 1.0)
            return number + 1, total + here(loss, noisy, *labels).gradient

        start = (tf.constant(0), tf.zeros_like(images))
        total = tf.while_loop(lambda number, _: number < self.draws, add, start)[1]
        logits = self.logits(images)
        return Gradient(loss(logits, *labels), logits, total / float(self.draws))
