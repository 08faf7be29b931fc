"""Times on this machine what attacks compute: networks and transforms apart, each once and for about a second.

A costly network may name a cheaper one of its kind, which is timed in its place; its time is scaled by the ratio of
their multiplications. Models that are not trained yet are timed with random weights, which cost the same.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bench import registry
from bench.api import Defence, ModelSource, Shape, SourceDescription, Stage
from bench.data.datasets import Dataset
from bench.models import recipe as recipes
from bench.models.architecture import Architecture
from bench.models.recipe import Recipe
from bench.spec import Spec

SECONDS = 0.5  # how long a pass is timed


def defended(name: str) -> SourceDescription:
    """A defence's own classifier as if it were a source."""
    return SourceDescription(name)


def recipe_of(spec: Spec, defence: str, source: SourceDescription) -> Recipe:
    """How a source's network is made and trained."""
    role = source.recipes[0] if source.recipes else source.kind
    found, _ = recipes.of_run(spec, *((f"{role}:{defence}", role, defence) if source.through else (role, "none")))
    return found


@dataclasses.dataclass(frozen=True)
class Seconds:
    """Of one image on this machine with all its cores busy: forward, and forward and back to the image."""

    query: float = 0.0
    gradient: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.query + other.query, self.gradient + other.gradient)

    def times(self, factor: float) -> Seconds:
        return Seconds(self.query * factor, self.gradient * factor)


class Calibration:
    """The passes that a defence's sources need, each timed the first time it is asked for; `say` is told which."""

    def __init__(
        self,
        spec: Spec,
        dataset: Dataset,
        name: str,
        defence: Defence,
        say: Callable[[str], None] = lambda text: None,
        brought: Architecture | None = None,
    ) -> None:
        """`brought` is the network of a defended classifier that was made elsewhere: its own sources have it too."""
        self._spec, self._dataset, self._name, self._defence, self._say = spec, dataset, name, defence, say
        self._brought = brought
        self._known: dict[tuple[object, ...], Seconds] = {}
        self.stand_ins: dict[str, str] = {}
        """Networks that were timed by cheaper ones, and by which."""

    def source(self, models: Iterable[SourceDescription]) -> Seconds:
        """One pass over a source that is these models."""
        return functools.reduce(Seconds.__add__, (self.front(model) + self.network(model) for model in models))

    def judging(self) -> float:
        """What the referee needs for an image: the transform and the defended classifier."""
        return self.source([defended(self._name)]).query

    def front(self, source: SourceDescription) -> Seconds:
        """What is before the source's network: a transform, the bypass's stand-in for it, or nothing."""
        return functools.reduce(Seconds.__add__, map(self._stage, source.through), Seconds())

    def _stage(self, stage: Stage) -> Seconds:
        if stage == "bypass":
            return self._once(
                ("bypass",), f"the bypass of {self._name}", lambda: self._timed(self._bypass(), self._shape)
            )
        defence = self._variant(stage)
        what = f"the transform of {self._name}" + (" that reconstructs" if defence is not self._defence else "")
        return self._once((stage,), what, lambda: self._timed(self._transform(defence), self._shape))

    def network(self, source: SourceDescription) -> Seconds:
        """The source's network alone."""
        wanted, classes = recipe_of(self._spec, self._name, source).network, len(self._dataset.classes)
        shape = self._variant(source.through[0]).output_shape(self._shape) if source.through else self._shape
        if source.through and self._brought is not None and self._brought.reads(shape, classes):
            wanted = self._brought
        timed = wanted.timed_by()
        seconds = self._once(
            ("network", str(timed), shape),
            f"{timed} on {'×'.join(map(str, shape))}",
            lambda: self._timed(self._classifier(timed, shape), shape),
        )
        if timed == wanted:
            return seconds
        self.stand_ins[str(wanted)] = str(timed)
        return seconds.times(wanted.cost(shape, classes) / timed.cost(shape, classes))

    @property
    def _shape(self) -> Shape:
        return self._dataset.shape

    def _variant(self, stage: Stage) -> Defence:
        """The defence that this stage is, or stands for."""
        changed = self._defence.reconstruction() if stage == "reconstruction" else None
        return self._defence if changed is None else registry.defence(self._name, changed)

    def _once(self, key: tuple[object, ...], what: str, measure: Callable[[], Seconds]) -> Seconds:
        if key not in self._known:
            self._say(f"timing {what}")
            self._known[key] = measure()
        return self._known[key]

    def _classifier(self, network: Architecture, shape: Shape) -> Callable[[Any], Any]:
        model = network.build(shape, len(self._dataset.classes))
        return lambda images: model(images, training=False)

    def _bypass(self) -> Callable[[Any], Any]:
        front = self._defence.bypass(self._shape)
        return self._read_out(lambda images: front(images, training=False), self._defence)

    def _transform(self, defence: Defence) -> Callable[[Any], Any]:
        state = self._state if defence is self._defence else {}
        return self._read_out(lambda images: defence.transform(images, 1 if defence.keyed else None, state), defence)

    def _read_out(self, front: Callable[[Any], Any], defence: Defence) -> Callable[[Any], Any]:
        """The front with the cheapest classifier behind it: logits of its channels' means."""
        import keras

        head = keras.layers.Dense(len(self._dataset.classes))
        head.build((None, defence.output_shape(self._shape)[2]))
        return lambda images: head(keras.ops.mean(front(images), axis=(1, 2)))

    @functools.cached_property
    def _state(self) -> Mapping[str, Any]:
        """What the defence learns from images; from the test images, which does for a stop watch."""
        return self._defence.fit(self._dataset.test.first(500).unit())

    def _timed(self, forward: Callable[[Any], Any], shape: Shape) -> Seconds:
        """`forward` gives logits of images of this shape; one image per core is timed."""
        import tensorflow as tf

        source, loss = ModelSource("timed", forward), _own_logit
        count = max(2, os.cpu_count() or 1)
        images = tf.constant(np.random.default_rng(0).random((count, *shape), np.float32))
        labels = tf.constant(self._dataset.test.first(count).labels)
        query = tf.function(lambda: source.logits(images))
        gradient = tf.function(lambda: source.gradient(loss, images, labels).gradient)
        return Seconds(_seconds(query) / count, _seconds(gradient) / count)


def _own_logit(logits: Any, labels: Any) -> Any:
    """z_y of logits (B×classes) and labels (B), to go back from: next to nothing beside the pass itself."""
    import tensorflow as tf

    return tf.gather(logits, labels, batch_dims=1)


def _seconds(compute: Callable[[], Any]) -> float:
    """Of the quickest of some calls, after a first one that compiles: others may be using the machine as well."""
    compute().numpy()
    found: list[float] = []
    while len(found) < 2 or sum(found) < SECONDS:
        began = time.perf_counter()
        compute().numpy()
        found.append(time.perf_counter() - began)
    return min(found)
