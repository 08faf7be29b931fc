"""What a run will cost before it runs: counts from the engines' budgets, times from a short calibration here.

Counts are the most that can be needed: attacks stop early on what they have broken.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from bench import order, registry
from bench.api import SourceDescription
from bench.evaluation.calibration import Calibration, defended, recipe_of
from bench.plan import Model, Pair
from bench.spec import Spec


@dataclasses.dataclass(frozen=True)
class Count:
    """Passes over one image, or over many: with a gradient, without one, and transforms by the defence among them."""

    gradients: int = 0
    queries: int = 0
    transforms: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.gradients + other.gradients, self.queries + other.queries, self.transforms + other.transforms)

    def times(self, factor: int) -> Count:
        return Count(self.gradients * factor, self.queries * factor, self.transforms * factor)


def budget(pair: Pair) -> Count:
    """The most an engine spends on one example; every pass over a model with the defence before it is a transform."""
    engine = registry.engine(pair.engine, dataclasses.asdict(pair.settings))
    gradients = queries = 0
    for part in engine.parts.values() or [engine]:
        if part.needs_gradient:
            gradients += part.work(1)
        else:
            queries += part.work(1)
    transforming = sum(1 for model in pair.models if {"defence", "reconstruction"} & set(model.description.through))
    return Count(gradients, queries, (gradients + queries) * transforming)


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
        kind = f"{pair.description.kind} (reference)" if pair.reference else pair.description.kind
        count = each.times(examples) + Count(transforms=examples)  # judging an image transforms it once
        seconds = examples * seconds_of(pair, calibration)
        before = found.get((pair.engine, kind), Line(pair.engine, kind, 0, 0, Count(), 0.0))
        found[pair.engine, kind] = Line(
            pair.engine, kind, before.cells + cells, before.examples + examples, before.count + count,
            before.seconds + seconds,
        )  # fmt: skip
    return sorted(found.values(), key=lambda line: -line.seconds)


def seconds_of(pair: Pair, calibration: Calibration) -> float:
    """The most that an attack on one example takes, with judging its image."""
    each, once = budget(pair), calibration.source(model.description for model in pair.models)
    return each.gradients * once.gradient + each.queries * once.query + calibration.judging()


@dataclasses.dataclass(frozen=True)
class ExpectedAttack:
    """An attack in its place in the order of a run on survivors."""

    name: str
    examples: int
    """That are expected to stand before it, as on training images (`bench.order`); all where nothing was measured."""
    seconds: float
    seconds_on_all: float
    """If it were shown every example."""


def steps(
    defence: str, norm: str, pairs: Sequence[Pair], examples: int, calibration: Calibration
) -> list[ExpectedAttack]:
    """What is expected of a run on survivors of so many examples in one norm."""
    ordered = order.of(defence, norm, pairs)
    shares = order.left_before(defence, norm, ordered)
    found = []
    for pair, share in zip(ordered, shares, strict=True):
        count, once = round(share * examples), seconds_of(pair, calibration)
        found.append(ExpectedAttack(pair.name, count, count * once, examples * once))
    return found


@dataclasses.dataclass(frozen=True)
class Training:
    """Models to train if none of them is there yet, and the passes with a gradient that takes."""

    models: int
    passes: int
    seconds: float


def training(
    spec: Spec, name: str, pairs: Sequence[Pair], images: int, calibration: Calibration, with_defended: bool = True
) -> Training:
    """Every source, and the defended classifier unless it was given: epochs × images, and an adversary's steps.

    A step of training goes back to the weights as well, which costs as much again as going back to the image.
    Transforms are not gone back through; a recipe with `copies` computes so many of an image, others one per epoch.
    """
    wanted = [*([defended(name)] if with_defended else []), *_trained(pairs)]
    passes, seconds = 0, 0.0
    for source in wanted:
        recipe = recipe_of(spec, name, source)
        epochs, steps = recipe.epochs, recipe.adversary.steps if recipe.adversary else 0
        front, network = calibration.front(source), calibration.network(source)
        used = recipe.images or images
        passes += epochs * used * (1 + steps)
        step = 2 * network.gradient - network.query + steps * network.gradient
        seconds += used * (epochs * step + (recipe.copies or epochs) * front.query)
    return Training(len(wanted), passes, seconds)


def _trained(pairs: Sequence[Pair]) -> list[SourceDescription]:
    """The models that the pairs' sources need trained, each once; of two sources made of the same ones, the larger."""
    wanted: collections.Counter[Model] = collections.Counter()
    for pair in pairs:
        wanted |= collections.Counter(model for model in pair.models if model.description.trained)
    return [model.description for model in wanted.elements()]
