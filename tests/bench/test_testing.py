"""The kit that plug-ins are held to: broken ones, each refused with the sentence that says why."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import bench.testing
from bench.api import (
    Attacked,
    Batch,
    Defence,
    Engine,
    Gradient,
    Knowledge,
    Loss,
    ModelSource,
    Network,
    Report,
    Shape,
    Source,
    SourceDescription,
    Strategy,
    UsageError,
)
from bench.testing import ContractError, check_defence, check_engine, check_network, check_strategy
from bench.testing.stand_ins import KeyedStandIn, KeylessStandIn, QuantisedStandIn
from tests.processes import python

SHAPE = (8, 8, 3)
COUNT = itertools.count()
State = Mapping[str, np.ndarray]


def sentence(check: Callable[..., None], plugin: Any, **options: Any) -> str:
    """What a check says of a broken plug-in: one sentence, on one line."""
    with pytest.raises(ContractError) as caught:
        check(plugin, **options)
    said = str(caught.value)
    assert "\n" not in said
    return said


# Settings and descriptions, which all kinds of plug-ins share.


@dataclasses.dataclass
class Thawed:
    amount: float = 0.5


@dataclasses.dataclass(frozen=True)
class Untold:
    amount: Any = dataclasses.field(default_factory=lambda: np.float32(0.5))


@dataclasses.dataclass(frozen=True)
class Unread:
    sizes: list[int] = dataclasses.field(default_factory=lambda: [1, 2])


@dataclasses.dataclass(frozen=True)
class Shifting:
    amount: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", self.amount + 1)


class WithoutDocstring(KeylessStandIn):
    pass


class NumberedVersion(KeylessStandIn):
    """Has a number for its version."""

    version = 2  # type: ignore[assignment]


class ThawedSettings(KeylessStandIn):
    """Has settings that can change."""

    Settings = Thawed


class UntoldSettings(KeylessStandIn):
    """Has settings that JSON does not know."""

    Settings = Untold


class UnreadSettings(KeylessStandIn):
    """Has settings of a type that is not read."""

    Settings = Unread


class ShiftingSettings(KeylessStandIn):
    """Has settings that are others when they are read again."""

    Settings = Shifting


class ForeignSettings(KeylessStandIn):
    """Is made with settings of another class."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(Thawed())


# Defences.


class Undeclared(KeylessStandIn):
    """Has a gradient of no known kind."""

    gradient = "exactly"  # type: ignore[assignment]


class Failing(KeylessStandIn):
    """Cannot transform."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        raise ValueError("seven is a bad number")


class WrongShape(KeylessStandIn):
    """Says another shape than it gives."""

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:2], 4)


class Double(KeylessStandIn):
    """Gives float64."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return tf.cast(images, tf.float64)


class Dividing(KeylessStandIn):
    """Divides by the image's own range, which a black image has none of."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return images / tf.reduce_max(images, axis=[1, 2, 3], keepdims=True)


class Noisy(KeylessStandIn):
    """Draws anew at every call."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return images + np.random.uniform(0, 0.1, size=images.shape[1:]).astype(np.float32)


class Averaging(KeylessStandIn):
    """Takes the mean of the batch away."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return images - tf.reduce_mean(images, axis=0, keepdims=True)


class Eager(KeylessStandIn):
    """Works outside of graphs only."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return tf.constant(2 * images.numpy()) + 0 * images


class Shapeless(KeylessStandIn):
    """Loses its shape in a graph."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return tf.reshape(images, tf.concat([tf.shape(images)[:3], [-1]], 0))


class Curious(KeylessStandIn):
    """Looks at a key that it does not declare."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return images if key is None else -images


class Indifferent(KeyedStandIn):
    """Declares a key and ignores it."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return 2 * images


class Remembering(KeyedStandIn):
    """Is never the same again after another key."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        positive = key is not None and key > 0
        self.turns = getattr(self, "turns", 0) + (positive != getattr(self, "before", positive))
        self.before = positive
        return super().transform(images, key, state) + float(self.turns)


class Keeping(KeyedStandIn):
    """Keeps the key as an attribute."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        self.plan = {"seeds": [np.array([0, key], np.int64)]}
        return super().transform(images, key, state)


class Writing(KeyedStandIn):
    """Keeps the key in a text."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        self.log = [*getattr(self, "log", []), f"used with {key}"]
        return super().transform(images, key, state)


class Enclosing(KeyedStandIn):
    """Keeps the key in a closure."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        self.again = [*getattr(self, "again", []), lambda: key]
        return super().transform(images, key, state)


class Caching(KeyedStandIn):
    """Keeps the key in the cache of a method."""

    @functools.lru_cache  # noqa: B019 (what is wrong with it is the point)
    def prepared(self, key: int) -> int:
        return key // 2

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        self.prepared(key or 0)
        return super().transform(images, key, state)


class Narrow(KeyedStandIn):
    """Takes 32-bit keys only."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        if key == -(2**63):
            raise OverflowError("Python int too large to convert to C long")
        return super().transform(images, key, state)


class Blind(KeylessStandIn):
    """Has no gradient."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return tf.stop_gradient(images)


class Flat(KeylessStandIn):
    """Has a gradient of zero."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return tf.stop_gradient(images) + 0 * images


class Exploding(KeylessStandIn):
    """Has an infinite gradient."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return tf.sqrt(tf.stop_gradient(images) * 0 + 0 * images) + images


class SoCalledExact(QuantisedStandIn):
    """Calls a stand-in for its gradient exact."""

    gradient = "exact"  # type: ignore[assignment]


class EightBits(QuantisedStandIn):
    """Rounds to eight bits and calls its gradient exact."""

    gradient = "exact"  # type: ignore[assignment]

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return images + tf.stop_gradient(tf.round(255 * images) / 255 - images)


class HalfGradient(KeylessStandIn):
    """Leaves out one channel's part of its gradient."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return tf.concat([2 * images[..., :2], 2 * tf.stop_gradient(images[..., 2:])], axis=-1)


class OddBypass(KeyedStandIn):
    """Has a bypass to somewhere else."""

    def bypass(self, shape: Shape) -> keras.Model:
        return keras.Sequential([keras.Input(shape), keras.layers.Conv2D(5, 1)])


class EmptyBypass(KeyedStandIn):
    """Has a bypass that cannot learn."""

    def bypass(self, shape: Shape) -> keras.Model:
        return keras.Sequential([keras.Input(shape), keras.layers.Rescaling(2.0)])


class Cropping(KeyedStandIn):
    """Changes the image's size, and brings no bypass."""

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return super().transform(images, key, state)[:, 1:]

    def output_shape(self, shape: Shape) -> Shape:
        return (shape[0] - 1, *shape[1:])


class OddReconstruction(KeyedStandIn):
    """Has a reconstruction with settings that it does not have."""

    def reconstruction(self) -> Mapping[str, Any]:
        return {"reconstruct": True}


class Fitted(KeylessStandIn):
    """Learns the mean of the training images."""

    def fit(self, images: np.ndarray) -> dict[str, np.ndarray]:
        return {"mean": images.mean(axis=0)}

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return images - state["mean"]


class RestlessFit(Fitted):
    """Learns from a random choice of them."""

    def fit(self, images: np.ndarray) -> dict[str, np.ndarray]:
        return super().fit(images[random.sample(range(40), 10)])


class GreedyFit(Fitted):
    """Keeps what it learns to itself."""

    def fit(self, images: np.ndarray) -> dict[str, np.ndarray]:
        self.mean = images.mean(axis=0)
        return {}

    def transform(self, images: tf.Tensor, key: int | None, state: State) -> tf.Tensor:
        return images - getattr(self, "mean", 0.0)


class RoughFit(Fitted):
    """Changes the images that it learns from."""

    def fit(self, images: np.ndarray) -> dict[str, np.ndarray]:
        images *= 2
        return super().fit(images)


class OddFit(Fitted):
    """Gives a list."""

    def fit(self, images: np.ndarray) -> dict[str, np.ndarray]:
        return [images.mean()]  # type: ignore[return-value]


DEFENCES: list[tuple[type[Defence], str]] = [
    (WithoutDocstring, "defence WithoutDocstring has no docstring: its first line must say what it does"),
    (NumberedVersion, "has version 2: it must be text, such as '1'"),
    (ThawedSettings, "has Settings that are no frozen dataclass"),
    (UntoldSettings, "has settings that do not come back from JSON (Object of type float32 is not JSON serializable)"),
    (
        UnreadSettings,
        "has settings that do not come back from JSON (UnreadSettings: sizes is '[1, 2]'; it must be of type",
    ),
    (ShiftingSettings, "has settings Shifting(amount=2) that come back from JSON as Shifting(amount=3)"),
    (ForeignSettings, "has settings of type Thawed: they must be its Settings, NoSettings"),
    (Undeclared, "has gradient = 'exactly': it must be 'exact', or 'bpda' where it is a stand-in"),
    (Failing, "must transform images of 4×8×8×3, and fails with ValueError: seven is a bad number"),
    (WrongShape, "gives (4, 8, 8, 3) for (4, 8, 8, 3), and its output_shape says (8, 8, 4): they must agree"),
    (Double, "gives float64: transform must give float32"),
    (Dividing, "gives NaN or infinity for a black and a white image: transform must give finite numbers"),
    (Noisy, "gives other numbers when it transforms the same images again: it must give the same bits"),
    (Averaging, "transforms an image otherwise in other company: an image's output must depend on that image alone"),
    (Eager, "must work inside a tf.function with an unknown batch size, as attacks call it, and fails with"),
    (
        Shapeless,
        "gives a tensor of shape (None, 8, 8, None) inside a tf.function: all but the batch size must be known",
    ),
    (Curious, "has keyed = False and gives other numbers under a key: it must ignore the key, or declare keyed = True"),
    (Indifferent, "has keyed = True and gives the same under another key: its output must depend on the key"),
    (
        Remembering,
        "gives other numbers under a key after it was used with another: it must give the same for the same key",
    ),
    (Keeping, "holds the key after use, in Keeping.plan['seeds'][0]: a defence must keep no key, in any form"),
    (Writing, "holds the key after use, in Writing.log[0]"),
    (Enclosing, "holds the key after use, in Enclosing.again[0] (its closure)"),
    (Caching, "holds the key after use, in Caching.prepared (its cache)"),
    (Narrow, "must transform images of 4×8×8×3 under any signed 64-bit key, and fails with OverflowError: Python int"),
    (Blind, "has no gradient (nothing leads from what transform gives back to the images)"),
    (Flat, "has a gradient that is zero everywhere, which hides it from attacks"),
    (Exploding, "has a gradient with NaN or infinity: it must be finite"),
    (SoCalledExact, "off from finite differences: it must be the true gradient, or be declared gradient = 'bpda'"),
    (EightBits, "off from finite differences: it must be the true gradient, or be declared gradient = 'bpda'"),
    (HalfGradient, "off from finite differences: it must be the true gradient, or be declared gradient = 'bpda'"),
    (OddBypass, "has a bypass of (None, 8, 8, 3) to (None, 8, 8, 5): it must be a Keras model from (None, 8, 8, 3) to"),
    (EmptyBypass, "has a bypass with nothing to train: it must have weights that can learn"),
    (
        Cropping,
        "has no bypass (Cropping changes the image size: give it a bypass of its own): a keyed defence must have",
    ),
    (
        OddReconstruction,
        "has a reconstruction whose settings do not fit (OddReconstruction has no setting 'reconstruct'",
    ),
    (RestlessFit, "learns another 'mean' from the same images: fit must be the same every time"),
    (
        GreedyFit,
        "gives other numbers than a new object with its settings and state: what fit learns must all be in the",
    ),
    (RoughFit, "changes the images it fits: it must copy them first"),
    (OddFit, "gives something else than arrays by name from fit: it must give a dict of arrays"),
]


@pytest.mark.parametrize(("defence", "said"), DEFENCES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_defence_is_refused(defence: type[Defence], said: str) -> None:
    assert said in sentence(check_defence, defence, shape=SHAPE)


@pytest.mark.parametrize("defence", [KeyedStandIn, KeylessStandIn, QuantisedStandIn, Fitted])
def test_a_sound_defence_passes_as_a_class_and_as_an_instance(defence: type[Defence]) -> None:
    check_defence(defence, shape=SHAPE)
    check_defence(defence(), shape=SHAPE)


def test_a_defence_may_be_asked_for_by_name() -> None:
    check_defence("block-shuffle[mode=values]", shape=SHAPE)
    with pytest.raises(UsageError, match="unknown defence"):
        check_defence("block-shufle")


# Engines.


@dataclasses.dataclass(frozen=True)
class Steps:
    steps: int = 2


class SoundEngine(Engine):
    """Goes down the margin by steps of half the ball's size."""

    Settings = Steps

    def work(self, examples: int) -> int:
        return examples * self.settings.steps

    def run(self, source: Source, batch: Batch, report: Report) -> Attacked:
        images = self.descend(source, batch)
        report(self.work(len(batch.labels)))
        margin = margins(source.logits(images), batch.labels).numpy()
        none, spent = np.full(len(margin), -1, np.int32), np.full(len(margin), self.settings.steps, np.int64)
        return Attacked(images.numpy(), margin < 0, margin, none, none, spent, np.ones_like(spent))

    def descend(self, source: Source, batch: Batch) -> tf.Tensor:
        images = origin = tf.constant(batch.images)
        epsilon = tf.constant(batch.epsilon, tf.float32)
        for _ in range(self.settings.steps):
            slope = source.gradient(margins, images, tf.constant(batch.labels)).gradient
            images = batch.ball.project(images - 0.5 * epsilon * batch.ball.steepest(slope), origin, epsilon)
        return images


def margins(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """z_y − max other z: B."""
    own = tf.one_hot(labels, tf.shape(logits)[-1])
    return tf.reduce_sum(own * logits, axis=-1) - tf.reduce_max(logits - 1e9 * own, axis=-1)


def changed(**columns: Callable[[Attacked], Any]) -> type[Engine]:
    """An engine whose result is a sound one's with some of it changed."""

    class Changed(SoundEngine):
        """Changes a sound result."""

        def run(self, source: Source, batch: Batch, report: Report) -> Attacked:
            found = super().run(source, batch, report)
            return dataclasses.replace(found, **{name: change(found) for name, change in columns.items()})

    return Changed


class WanderingEngine(SoundEngine):
    """Takes no heed of the ball."""

    def descend(self, source: Source, batch: Batch) -> tf.Tensor:
        return tf.clip_by_value(batch.images + 0.1, 0.0, 1.0)


class GamblingEngine(SoundEngine):
    """Starts anywhere, without the example's seed."""

    def descend(self, source: Source, batch: Batch) -> tf.Tensor:
        noise = np.random.uniform(-1, 1, size=batch.images.shape).astype(np.float32)
        start = np.clip(batch.images + 0.5 * np.float32(batch.epsilon) * noise, 0, 1)
        moved = super().descend(source, dataclasses.replace(batch, images=start, epsilon=0.5 * batch.epsilon))
        return batch.ball.project(moved, tf.constant(batch.images), tf.constant(batch.epsilon, tf.float32))


class SociableEngine(SoundEngine):
    """Follows the mean gradient of its batch."""

    def descend(self, source: Source, batch: Batch) -> tf.Tensor:
        slope = source.gradient(margins, tf.constant(batch.images), tf.constant(batch.labels)).gradient
        for _ in range(self.settings.steps - 1):
            source.gradient(margins, tf.constant(batch.images), tf.constant(batch.labels))
        mean = tf.zeros_like(slope) + tf.reduce_mean(slope, axis=0, keepdims=True)
        epsilon = tf.constant(batch.epsilon, tf.float32)
        moved = batch.images - epsilon * batch.ball.steepest(mean)
        return batch.ball.project(moved, tf.constant(batch.images), epsilon)


class IdleEngine(SoundEngine):
    """Gives the images back as they are."""

    def descend(self, source: Source, batch: Batch) -> tf.Tensor:
        for _ in range(self.settings.steps):
            source.gradient(margins, tf.constant(batch.images), tf.constant(batch.labels))
        return tf.constant(batch.images)


class ThriftyEngine(SoundEngine):
    """Computes more gradients than it says."""

    def descend(self, source: Source, batch: Batch) -> tf.Tensor:
        source.gradient(margins, tf.constant(batch.images), tf.constant(batch.labels))
        return super().descend(source, batch)


class AskingEngine(SoundEngine):
    """Asks more than it says."""

    def descend(self, source: Source, batch: Batch) -> tf.Tensor:
        for _ in range(5):
            source.logits(tf.constant(batch.images))
        return super().descend(source, batch)


class PeekingEngine(SoundEngine):
    """Says that it needs no gradient, and computes some."""

    needs_gradient = False


class SilentEngine(SoundEngine):
    """Reports nothing."""

    def run(self, source: Source, batch: Batch, report: Report) -> Attacked:
        return super().run(source, batch, lambda amount: None)


class EndlessEngine(SoundEngine):
    """Cannot say how much work it is."""

    def work(self, examples: int) -> int:
        return 0


class OddPartsEngine(SoundEngine):
    """Has a part that is no engine."""

    parts = MappingProxyType({"first": "pgd"})  # type: ignore[dict-item]


class UncountedPartsEngine(SoundEngine):
    """Declares parts, and does not say which one found what."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.parts = {"first": SoundEngine(), "second": SoundEngine()}


class RefusingEngine(SoundEngine):
    """Refuses every norm."""

    def run(self, source: Source, batch: Batch, report: Report) -> Attacked:
        raise UsageError(f"cannot work in norm '{batch.norm}'")


class CrashingEngine(SoundEngine):
    """Breaks down."""

    def run(self, source: Source, batch: Batch, report: Report) -> Attacked:
        raise KeyError("mean")


ENGINES: list[tuple[type[Engine], str]] = [
    (
        changed(images=lambda found: found.images.astype(np.float64)),
        "gives images of (5, 8, 8, 3), float64: they must be",
    ),
    (
        changed(images=lambda found: found.images[1:]),
        "gives images of (4, 8, 8, 3), float32: they must be a numpy array of",
    ),
    (changed(images=lambda found: found.images * np.nan), "gives NaN or infinity in an image: images must be finite"),
    (changed(images=lambda found: found.images + 1), "gives values outside [0,1]: images must stay in it"),
    (WanderingEngine, "leaves the linf ball of 0.03 (it goes to 0.1): every image must stay in it"),
    (
        changed(restart=lambda found: found.restart.astype(int)),
        "gives restart as int64 of (5,) for 5 examples: it must be",
    ),
    (
        changed(queries=lambda found: found.queries[0]),
        "gives queries as int64 of () for 5 examples: it must be a numpy array",
    ),
    (changed(margin=lambda found: found.margin - 1), "gives a margin that is not that of its images on the source"),
    (
        changed(success=lambda found: ~found.success),
        "says success where its margin is not negative, or the other way round",
    ),
    (changed(part=lambda found: found.restart), "names parts and declares none: declare them in Engine.parts"),
    (
        GamblingEngine,
        "gives other images when it runs again: an example's result must depend on its image, label and seed",
    ),
    (
        SociableEngine,
        "gives other images in other company: an example's result must depend on its image, label and seed",
    ),
    (
        IdleEngine,
        "leaves 3 of 3 images standing on a linear model, in a linf ball 2 times as large as the way to the nearest",
    ),
    (ThriftyEngine, "says it spent 2 gradients on an example, and asked for 3: it must count each of them"),
    (AskingEngine, "says it spent 1 queries on an example, and asked for 6: it must count each forward pass"),
    (PeekingEngine, "has needs_gradient = False and asks for 2 gradients: it must ask for none"),
    (SilentEngine, "reports 0 units of work for one example, of 2 that work(1) says: all must be reported"),
    (EndlessEngine, "has 0 work in 3 examples: work must give a whole number above 0"),
    (OddPartsEngine, "has a part 'first' that is str: parts must be engines by name"),
    (UncountedPartsEngine, "names part None of 2: part must be int32, from 0, or −1 for none of them"),
    (RefusingEngine, "refuses every norm (cannot work in norm 'linf'): it must work in one at least"),
    (CrashingEngine, "must attack 5 examples in linf, and fails with KeyError: 'mean'"),
]


@pytest.mark.parametrize(("engine", "said"), ENGINES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_engine_is_refused(engine: type[Engine], said: str) -> None:
    assert said in sentence(check_engine, engine, in_norms=("linf",))


def test_a_sound_engine_passes() -> None:
    check_engine(SoundEngine)


# Strategies.


class SoundStrategy(Strategy):
    """The undefended network on mirrored images, and the defended classifier on plain ones."""

    def sources(self, defence: Defence) -> list[str]:
        return ["mirrored:1"]

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        return SourceDescription("mirrored", through=())

    def build(self, source: str, knowledge: Knowledge) -> Source:
        plain = knowledge.workshop.classifier("none", {})
        return ModelSource(source, lambda images: plain.logits(images[:, :, ::-1]))


def offering(*names: str) -> type[Strategy]:
    """A strategy with sources of these names."""

    class Offering(SoundStrategy):
        """Offers other sources."""

        def sources(self, defence: Defence) -> list[str]:
            return list(names)

    return Offering


def building(build: Callable[[str, Knowledge], Any], **attributes: Any) -> type[Strategy]:
    """A strategy that builds its source otherwise."""

    class Building(SoundStrategy):
        """Builds another source."""

        def build(self, source: str, knowledge: Knowledge) -> Source:
            found: Source = build(source, knowledge)
            return found

    for name, value in attributes.items():
        setattr(Building, name, value)
    return Building


class Batched(ModelSource):
    """A source that normalises over the batch."""

    def logits(self, images: tf.Tensor) -> tf.Tensor:
        logits = super().logits(images)
        return logits - tf.reduce_mean(logits, axis=0, keepdims=True)


class Averaged(ModelSource):
    """A source whose gradients are those of the batch."""

    def gradient(self, loss: Loss, images: tf.Tensor, *labels: tf.Tensor) -> Gradient:
        found = super().gradient(loss, images, *labels)
        return Gradient(
            found.loss, found.logits, found.gradient + tf.reduce_mean(found.gradient, axis=0, keepdims=True)
        )


def through(kind: type[ModelSource], **options: Any) -> Callable[[str, Knowledge], Source]:
    """Builds a plain classifier as a source of this class."""
    return lambda source, knowledge: kind(source, knowledge.workshop.classifier("none", {}).logits, **options)


def random_logits(source: str, knowledge: Knowledge) -> Source:
    plain = knowledge.workshop.classifier("none", {})
    return ModelSource(source, lambda images: plain.logits(images) + tf.random.normal((1, 5)))


def keyed(source: str, knowledge: Knowledge) -> Source:
    """Needs the private key."""
    return ModelSource(source, lambda images: knowledge.defence.transform(images, knowledge.guess, knowledge.state))


class OddDescription(SoundStrategy):
    """Describes its source as something else."""

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        return SourceDescription("mirror")


class OddStage(SoundStrategy):
    """Describes its source as passing through something unknown."""

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        return SourceDescription("mirrored", through=("mirror",))  # type: ignore[arg-type]


class SilentRefusal(SoundStrategy):
    """Refuses without a reason."""

    def refusal(self, defence: Defence, source: str) -> str | None:
        return " "


class Insider(SoundStrategy):
    """Computes with the private key and finds nothing wrong with that."""

    needs_key = True


class Unable(SoundStrategy):
    """Cannot build what it names."""

    def builds(self, defence: Defence, source: str) -> bool:
        return False


STRATEGIES: list[tuple[type[Strategy], str]] = [
    (
        offering(),
        "has no source against KeyedStandIn: give check_strategy a defence that it has one for (defences=[…])",
    ),
    (offering("Mirror 1"), "names a source 'Mirror 1': it must be 'kind' or 'kind:number'"),
    (offering("mirrored:1", "mirrored:1"), "names a source twice (mirrored:1, mirrored:1): each must be one"),
    (Unable, "names the source mirrored:1 against KeyedStandIn and says that it cannot build it: builds must be True"),
    (
        OddDescription,
        "describes mirrored:1 as one of kind 'mirror': its kind must be what its name begins with, 'mirrored'",
    ),
    (
        OddStage,
        "describes mirrored:1 as going through ['mirror']: choose from bypass, defence, reconstruction, or nothing",
    ),
    (SilentRefusal, "refuses mirrored:1 with ' ': refusal must give a reason in words, or None"),
    (Insider, "computes mirrored:1 with the private key of KeyedStandIn and calls it inside the threat model"),
    (
        building(keyed),
        "must give the logits of mirrored:1 inside a tf.function, for any batch size, and fails with ValueError",
    ),
    (building(lambda source, knowledge: None), "builds NoneType for mirrored:1: build must give a Source"),
    (
        building(lambda source, knowledge: through(ModelSource)("other", knowledge)),
        "builds a source called 'other' for",
    ),
    (
        building(through(ModelSource, exact=True)),
        "calls its source mirrored:1 exact against KeyedStandIn: the defended model",
    ),
    (
        building(through(ModelSource, has_gradient=False)),
        "has has_gradient = True and builds mirrored:1 with False: they must",
    ),
    (building(random_logits), "gives other logits from mirrored:1 for the same images: they must be the same bits"),
    (
        building(through(Batched)),
        "gives other logits from mirrored:1 for an image in other company: they must be the same",
    ),
    (
        building(through(Averaged)),
        "gives other gradients from mirrored:1 for an image in other company: they must be the same",
    ),
    (
        building(lambda name, knowledge: ModelSource(name, lambda x: knowledge.classifier(x)[:, :4])),
        "gives float32 logits of (3, 4) from mirrored:1 for 3 images and 5 classes: they must be finite float32 of (3, 5)",
    ),
    (
        building(lambda name, knowledge: ModelSource(name, lambda x: knowledge.classifier(tf.round(x)))),
        "gives gradients from mirrored:1 that are zero everywhere: they must lead somewhere, or has_gradient be False",
    ),
]


@pytest.mark.parametrize(("strategy", "said"), STRATEGIES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_strategy_is_refused(strategy: type[Strategy], said: str) -> None:
    assert said in sentence(check_strategy, strategy, defences=[KeyedStandIn()])


def test_a_sound_strategy_passes() -> None:
    check_strategy(SoundStrategy)


# Networks.


@dataclasses.dataclass(frozen=True)
class Width:
    width: int = 4


class SoundNetwork(Network):
    """A convolution and a matrix."""

    Settings = Width

    def build(self, shape: Shape, classes: int) -> keras.Model:
        layers = [keras.layers.Conv2D(self.settings.width, 3), keras.layers.Flatten(), *self.extra()]
        return keras.Sequential([keras.Input(shape), *layers, keras.layers.Dense(classes)])

    def extra(self) -> list[keras.Layer]:
        return []

    def cost(self, shape: Shape, classes: int) -> int:
        rows, columns = shape[0] - 2, shape[1] - 2
        return rows * columns * self.settings.width * (9 * shape[2] + classes)


def with_layer(layer: Callable[[], keras.Layer]) -> type[Network]:
    """A network with a layer more."""

    class WithLayer(SoundNetwork):
        """Has a layer more."""

        def extra(self) -> list[keras.Layer]:
            return [layer()]

    return WithLayer


class Fewer(SoundNetwork):
    """Has one class less."""

    def build(self, shape: Shape, classes: int) -> keras.Model:
        return super().build(shape, classes - 1)


class Unseeded(SoundNetwork):
    """Draws weights of its own."""

    def build(self, shape: Shape, classes: int) -> keras.Model:
        model = super().build(shape, classes)
        generator = np.random.default_rng()
        model.set_weights([generator.normal(size=weight.shape) for weight in model.weights])
        return model


class Renamed(SoundNetwork):
    """Calls its layers otherwise every time."""

    def extra(self) -> list[keras.Layer]:
        return [keras.layers.Dense(3, name=f"layer-{next(COUNT)}")]


class Hidden(keras.layers.Layer):
    """Keeps a number of its own outside the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = float(keras.random.uniform(()))

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        return inputs * self.factor


class AcrossBatch(keras.layers.Layer):
    """Takes away the mean of the batch, always."""

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        return inputs - keras.ops.mean(inputs, axis=0, keepdims=True)


class AlwaysNoise(keras.layers.Layer):
    """Adds noise in inference too."""

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        return inputs + tf.random.normal(tf.shape(inputs))


class Deaf(keras.layers.Layer):
    """Lets no gradient through."""

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        return keras.ops.stop_gradient(inputs)


class Cheap(SoundNetwork):
    """Understates its cost."""

    def cost(self, shape: Shape, classes: int) -> int:
        return super().cost(shape, classes) // 3


class Costly(SoundNetwork):
    """Is timed by a larger one."""

    def timed_by(self) -> Network:
        return Costly(Width(width=2 * self.settings.width))


class Limited(SoundNetwork):
    """Is larger than it allows."""

    limits = MappingProxyType({"width": 3})


class Mistaken(SoundNetwork):
    """Limits what it does not have."""

    limits = MappingProxyType({"depth": 3})


class Restless(SoundNetwork):
    """Prepares otherwise every time."""

    def prepare(self, model: keras.Model, images: np.ndarray) -> None:
        kernel = model.weights[0]
        kernel.assign(kernel + 1.0)


class Pictureless(SoundNetwork):
    """Names a layer that it does not have."""

    def picture_layer(self) -> str:
        return "picture"


NETWORKS: list[tuple[type[Network], str]] = [
    (Fewer, "builds a model from (None, 8, 8, 3) to (None, 9): it must go from (None, 8, 8, 3) to (None, 10)"),
    (Unseeded, "under the same seed: all weights must come from Keras's generators, which the harness seeds"),
    (Renamed, "gives its weights other names when it is built again: layers must have the same names every time"),
    (with_layer(Hidden), "gives other logits after its weights were kept and read into a new model: everything that"),
    (
        with_layer(AcrossBatch),
        "gives other logits for an input in other company: with training=False they must depend on",
    ),
    (with_layer(AlwaysNoise), "gives other logits for the same inputs: with training=False it must have no randomness"),
    (with_layer(Deaf), "has no gradient from its logits to its inputs, or one that is zero or not finite"),
    (Cheap, "multiplications are counted in a forward pass over one input: cost must be about as many"),
    (
        Costly,
        "is timed by a network that costs more, or is none: timed_by must give a cheaper one of its kind, or itself",
    ),
    (Limited, "has width = 4, above its own limit of 3: raise the limit"),
    (Mistaken, "has a limit on depth, which is none of its settings: limits must name settings"),
    (Restless, "sets other weights when prepare is called again with the same images: it must be the same every time"),
    (Pictureless, "has picture_layer 'picture': it must be None, or the name of a layer whose output is laid out like"),
]


@pytest.mark.parametrize(("network", "said"), NETWORKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_network_is_refused(network: type[Network], said: str) -> None:
    assert said in sentence(check_network, network, shape=SHAPE)


def test_a_sound_network_passes_and_what_keras_leaves_out_in_inference_does_not_matter() -> None:
    check_network(SoundNetwork, shape=SHAPE)
    check_network(with_layer(lambda: keras.layers.Dropout(0.5)), shape=SHAPE)


# How it is shown.


def test_the_error_of_a_plug_in_is_the_cause_of_the_sentence() -> None:
    with pytest.raises(ContractError) as caught:
        check_defence(Failing, shape=SHAPE)
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value.__cause__, ValueError)


def test_it_needs_no_test_framework() -> None:
    for path in Path(bench.testing.__file__).parent.glob("*.py"):
        assert not re.search(r"^\s*(import|from) (pytest|hypothesis)", path.read_text(), re.MULTILINE), path.name


@pytest.mark.needs_process
def test_pytest_shows_the_call_and_the_sentence(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "from bench.testing import check_defence\n"
        "from bench.testing.stand_ins import KeylessStandIn\n"
        "class Mine(KeylessStandIn):\n    pass\n"
        "def test_mine():\n    check_defence(Mine, shape=(8, 8, 3))\n"
    )
    code = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'test_mine.py']))"
    shown = python(code, cwd=tmp_path).stdout
    assert ">       check_defence(Mine, shape=(8, 8, 3))" in shown.replace(">   ", ">       ").replace(
        "         ", "     "
    )
    assert (
        "E       bench.testing.contract.ContractError: defence Mine has no docstring: its first line must say" in shown
    )
    assert "contract.py:" not in shown
