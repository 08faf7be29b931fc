"""What a run will cost before it runs: counts from the engines' budgets, times from a short calibration here.

Counts are the most that can be needed: attacks stop early on what they have broken. Models that are not trained yet
are timed with random weights, which cost the same.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import registry
from bench.api import Defence, Engine
from bench.data import Dataset
from bench.plan import Pair
from bench.spec import Spec

PLAIN = ("nominal", "at-linf", "at-l2")
MEMBERS = {"ensemble": PLAIN}  # sources that are several models at once
SECONDS = 1.0  # how long each pass is timed


@dataclasses.dataclass(frozen=True)
class Count:
    """Passes over one image, or over many: with a gradient, without one, and transforms by the defence among them."""

    gradients: int = 0
    queries: int = 0
    transforms: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.gradients + other.gradients, self.queries + other.queries, self.transforms + other.transforms
        )

    def times(self, factor: int) -> Count:
        return Count(self.gradients * factor, self.queries * factor, self.transforms * factor)


def budget(pair: Pair) -> Count:
    """The most an engine spends on one example; every pass on a source that has the defence in it is a transform."""
    engine = registry.create("attacks", pair.engine, dataclasses.asdict(pair.settings))
    gradients = queries = 0
    for part in _parts(engine):
        if part.needs_gradient:
            gradients += part.work(1)
        else:
            queries += part.work(1)
    through = kind_of(pair.source) in ("defended", "reconstruction")
    return Count(gradients, queries, (gradients + queries) * through)


def _parts(engine: Engine) -> Sequence[Engine]:
    return list(getattr(engine, "engines", {}).values()) or [engine]


def kind_of(source: str) -> str:
    """What a pass over a source computes: a plain network, the bypass, the defence or its reconstruction."""
    name = source.partition(":")[0]
    if name in (*PLAIN, "user", *MEMBERS):
        return "plain"
    if name.startswith("bypass") or name.endswith("bypass"):
        return "bypass"
    return "reconstruction" if name == "reconstruction" else "defended"


@dataclasses.dataclass(frozen=True)
class Seconds:
    """Of one image on this machine with all its cores busy."""

    query: float
    gradient: float


class Calibration:
    """Times the passes that a defence's sources need, each the first time it is asked for."""

    def __init__(self, spec: Spec, dataset: Dataset, name: str, defence: Defence) -> None:
        self._spec, self._dataset, self._name, self._defence = spec, dataset, name, defence
        self._known: dict[tuple[str, int, int], Seconds] = {}

    def source(self, source: str) -> Seconds:
        """One pass over the source, forward and with a gradient."""
        members = MEMBERS.get(source, (source,))
        timed = [self._timed(kind_of(member), *self._size(member)) for member in members]
        return Seconds(sum(t.query for t in timed), sum(t.gradient for t in timed))

    def judging(self) -> float:
        """What the referee needs for an image: the transform and the defended classifier."""
        fields, _ = self._spec.recipe(self._name)
        return self._timed("defended", fields["depth"], fields["width"]).query

    def _size(self, source: str) -> tuple[int, int]:
        name = source.partition(":")[0]
        roles = (name, "none") if name in PLAIN else (f"{name}:{self._name}", name, self._name)
        fields, _ = self._spec.recipe(*roles)
        return fields["depth"], fields["width"]

    def _timed(self, kind: str, depth: int, width: int) -> Seconds:
        if (kind, depth, width) not in self._known:
            self._known[kind, depth, width] = self._measure(kind, depth, width)
        return self._known[kind, depth, width]

    def _measure(self, kind: str, depth: int, width: int) -> Seconds:
        import tensorflow as tf

        from attacks.losses import UNTARGETED
        from attacks.sources import ModelSource

        source = ModelSource(kind, self._forward(kind, depth, width))
        loss = next(iter(UNTARGETED.values()))
        count = max(2, os.cpu_count() or 1)
        images = tf.constant(self._dataset.test.first(count).unit())
        labels = tf.constant(self._dataset.test.first(count).labels)
        query = tf.function(lambda: source.logits(images))
        gradient = tf.function(lambda: source.gradient(loss, images, labels).gradient)
        return Seconds(_seconds(query) / count, _seconds(gradient) / count)

    def _forward(self, kind: str, depth: int, width: int) -> Callable[[Any], Any]:
        from bench.networks import wide_resnet

        shape, classes = self._dataset.shape, len(self._dataset.classes)
        defence = self._defence
        if kind == "plain":
            defence = registry.create("defences", "none", {})
        elif kind == "reconstruction" and (changed := defence.reconstruction()) is not None:
            defence = registry.create("defences", self._name, changed)
        network = wide_resnet(defence.output_shape(shape), classes, depth, width)
        if kind == "bypass":
            front = defence.bypass(shape)
            return lambda images: network(front(images, training=False), training=False)
        state = self._state if defence is self._defence else {}
        key = 1 if defence.keyed else None
        return lambda images: network(defence.transform(images, key, state), training=False)

    @functools.cached_property
    def _state(self) -> Mapping[str, Any]:
        """What the defence learns from images; from the test images, which does for a stop watch."""
        return self._defence.fit(self._dataset.test.first(500).unit())


def _seconds(compute: Callable[[], Any]) -> float:
    """Of one call, after a first one that compiles."""
    compute().numpy()
    began, calls = time.perf_counter(), 0
    while calls < 1 or time.perf_counter() - began < SECONDS:
        compute().numpy()
        calls += 1
    return (time.perf_counter() - began) / calls


@dataclasses.dataclass(frozen=True)
class Line:
    """Some cells with the same engine on the same kind of source."""

    engine: str
    source: str
    cells: int
    examples: int
    count: Count
    seconds: float


def lines(pairs: Sequence[Pair], left: Mapping[str, int], cells: int, calibration: Calibration) -> list[Line]:
    """What the pairs cost, alike ones in one line. `left` is how many examples of a pair's `cells` cells are to do."""
    found: dict[tuple[str, str], Line] = {}
    for pair in pairs:
        examples, each = left[pair.name], budget(pair)
        once, name = calibration.source(pair.source), pair.source.partition(":")[0]
        count = each.times(examples) + Count(transforms=examples)  # judging an image transforms it once
        seconds = examples * (each.gradients * once.gradient + each.queries * once.query + calibration.judging())
        before = found.get((pair.engine, name), Line(pair.engine, name, 0, 0, Count(), 0.0))
        found[pair.engine, name] = Line(
            pair.engine, name, before.cells + cells, before.examples + examples, before.count + count,
            before.seconds + seconds,
        )  # fmt: skip
    return sorted(found.values(), key=lambda line: -line.seconds)


@dataclasses.dataclass(frozen=True)
class Training:
    """Models to train if none of them is there yet, and the passes with a gradient that takes."""

    models: int
    passes: int
    seconds: float


def training(spec: Spec, name: str, pairs: Sequence[Pair], images: int, calibration: Calibration) -> Training:
    """The defended classifier and every source: epochs × images, and the attack's steps in adversarial training."""
    wanted = {name, *(m for pair in pairs for m in MEMBERS.get(pair.source, (pair.source,)))}
    wanted -= {source for source in wanted if source in ("self", "query") or source.startswith(("user", "key-", "guess"))}
    passes, seconds = 0, 0.0
    for source in wanted:
        kind = source.partition(":")[0]
        roles = (kind, "none") if kind in PLAIN else (f"{kind}:{name}", kind, name)
        fields, _ = spec.recipe(*(roles if source != name else (name,)))
        own = fields["epochs"] * (fields.get("images") or images) * (1 + (fields.get("adversary") or {}).get("steps", 0))
        passes += own
        seconds += own * calibration.source("surrogate" if source == name else source).gradient
    return Training(len(wanted), passes, seconds)
