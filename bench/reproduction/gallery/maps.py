"""What Figure 4 shows: the classes that five models give to images around five examples, along two directions."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from bench.api import UsageError
from bench.data.datasets import Split
from bench.models.catalogue import NotTrained
from bench.reproduction.gallery.cached import Arrays, cached, is_cached
from bench.reproduction.gallery.classifiers import ADVERSARIAL, DEFENDED, NOMINAL, TITLES, Models, Predict
from bench.spec import Spec
from bench.support.progress import progress_lines
from bench.vault.base import Vault
from leaderboard import paper

EXAMPLES = 5
POINTS = 31
"""Points on a side of a map, unless the preset has its own number."""
REACH = 8
"""How far a map goes from its example, in units of the L2 epsilon."""


@dataclasses.dataclass(frozen=True)
class Plane:
    """The planes through some examples that are mapped, one per example."""

    examples: Split
    places: np.ndarray  # N: where the examples are among the board's
    horizontal: np.ndarray  # N×H×W×3, of size 1 in L2
    vertical: np.ndarray  # H×W×3, of size 1 in L2
    offsets: np.ndarray  # points: from −reach to reach, with 0 in the middle

    @functools.cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.examples.fingerprint.encode())
        for array in (self.horizontal, self.vertical, self.offsets):
            digest.update(np.ascontiguousarray(array, np.float64).tobytes())
        return digest.hexdigest()

    def row(self, example: int, offset: float) -> np.ndarray:
        """The images along a horizontal line of a map (points×H×W×3), cut off to [0,1]."""
        start = self.examples.unit()[example] + offset * self.vertical
        images = start + self.offsets[:, None, None, None] * self.horizontal[example]
        return np.asarray(np.clip(images, 0, 1), np.float32)


@dataclasses.dataclass(frozen=True)
class Maps:
    """What every model that can be had says around the examples, and why the others are left out."""

    plane: Plane
    guide: str
    """The model whose errors lie to the right."""
    epsilon: float
    labels: tuple[str, ...]
    """The names of the classes."""
    classes: Mapping[str, np.ndarray]
    """By model: the class at every point (N×points×points), the largest vertical offset in the first row."""
    left_out: Mapping[str, str]


def compute(spec: Spec, key: Vault | None, may_train: bool, say: Callable[[str], None]) -> Maps:
    """The maps of Figure 4, each cached as soon as it is there."""
    epsilon = spec.epsilon.get("l2", paper.EPSILONS["l2"])
    half = _points(spec) // 2
    models = Models(spec, key, may_train, say)
    guide, plane = _plane(models, epsilon, REACH * epsilon * np.arange(-half, half + 1) / half)
    classes: dict[str, np.ndarray] = {}
    left_out: dict[str, str] = {}
    for name in TITLES:
        if name == DEFENDED and not models.shows_defended:
            left_out[name] = "its key is a secret, and answers of the defended model are the referee's alone"
            continue
        try:
            classes[name] = _mapped(models, name, plane, say)
        except NotTrained:
            left_out[name] = "it is not trained yet"
    return Maps(plane, guide, epsilon, tuple(models.contest.dataset.classes), classes, left_out)


def _plane(models: Models, epsilon: float, offsets: np.ndarray) -> tuple[str, Plane]:
    """Random examples of the board, the way to the errors of a model, and one random direction; and that model's name."""
    spec, everyone = models.contest.spec, models.contest.examples
    random = np.random.default_rng(spec.seed)
    places = np.sort(random.choice(len(everyone), min(EXAMPLES, len(everyone)), replace=False))
    examples = Split(everyone.images[places], everyone.labels[places])
    vertical = random.standard_normal(everyone.images.shape[1:])
    try:
        guide, horizontal = ADVERSARIAL, _direction(models, ADVERSARIAL, examples, epsilon)
    except NotTrained:
        guide, horizontal = NOMINAL, _direction(models, NOMINAL, examples, epsilon)
    return guide, Plane(examples, places, horizontal, vertical / np.linalg.norm(vertical), offsets)


def _points(spec: Spec) -> int:
    points = spec.gallery.get("map_points", POINTS)
    if not isinstance(points, int) or points < 3 or points % 2 == 0:
        raise UsageError(
            f"preset {spec.preset}: gallery.map_points is {points!r}; it must be an odd number of at least 3"
        )
    return points


def _direction(models: Models, name: str, examples: Split, epsilon: float) -> np.ndarray:
    description = {
        "what": "direction",
        "model": models.identity(name),
        "engine": models.engine(name),
        "images": examples.fingerprint,
        "epsilon": epsilon,
        "seed": models.contest.spec.seed,
    }
    return cached(description, lambda: {"directions": models.direction(name, examples, epsilon)})["directions"]


def _mapped(models: Models, name: str, plane: Plane, say: Callable[[str], None]) -> np.ndarray:
    """What a model says around every example (N×points×points); each map is cached as soon as it is there."""
    description = {"what": "map", "model": models.identity(name), "plane": plane.fingerprint}
    parts = [{**description, "example": number} for number in range(len(plane.examples))]
    to_do = sum(not is_cached(part) for part in parts)
    predict = models.predict(name) if to_do else None
    with progress_lines(say)(f"mapping {name}", to_do * len(plane.offsets)) as progress:

        def compute(example: int) -> Arrays:
            assert predict is not None
            return {"classes": classes_around(plane, example, predict, progress.advance)}

        found = [cached(part, functools.partial(compute, number))["classes"] for number, part in enumerate(parts)]
    return np.stack(found)


def classes_around(plane: Plane, example: int, predict: Predict, advance: Callable[[float], None]) -> np.ndarray:
    """What a model says at every point of a map (points×points), the largest vertical offset in the first row."""
    rows = []
    for offset in plane.offsets[::-1]:
        rows.append(predict(plane.row(example, float(offset))).astype(np.int16))
        advance(1)
    return np.stack(rows)
