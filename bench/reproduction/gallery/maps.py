"""Figure 4: which class five models give to images around five examples, along an adversarial and a random direction."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from bench.api import UsageError
from bench.data.datasets import Split
from bench.keys import PrivateKey
from bench.models.catalogue import NotTrained
from bench.reproduction.gallery.classifiers import ADVERSARIAL, DEFENDED, NOMINAL, TITLES, Models, Predict
from bench.reproduction.gallery.kept import Arrays, is_kept, kept
from bench.reproduction.gallery.map_chart import chart
from bench.spec import Spec
from bench.support.progress import progress_lines
from leaderboard import paper, words
from leaderboard.figures import Figure

EXAMPLES = 5
POINTS = 31
"""Points on a side of a map, unless the preset has its own number."""
REACH = 8
"""How far a map goes from its example, in units of the L2 epsilon."""


@dataclasses.dataclass(frozen=True)
class Plane:
    """The planes through some examples that are mapped, one an example."""

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
        return np.clip(images, 0, 1).astype(np.float32)


def figure4(spec: Spec, key: PrivateKey | None, may_train: bool, say: Callable[[str], None]) -> Figure:
    """The maps of every model that can be had; the caption says which cannot."""
    epsilon = spec.epsilon.get("l2", paper.EPSILONS["l2"])
    half = _points(spec) // 2
    models = Models(spec, key, may_train, say)
    guide, plane = _plane(models, epsilon, REACH * epsilon * np.arange(-half, half + 1) / half)
    maps: dict[str, np.ndarray] = {}
    left_out: dict[str, str] = {}
    for name in TITLES:
        if name == DEFENDED and not models.shows_defended:
            left_out[name] = "its key is a secret, and answers of the defended model are the referee's alone"
            continue
        try:
            maps[name] = _mapped(models, name, plane, say)
        except NotTrained:
            left_out[name] = "it is not trained yet"
    classes = models.contest.dataset.classes
    title = "Decisions of models around the same examples"
    rows = {TITLES[name]: found for name, found in maps.items()}
    drawn = chart(rows, plane.examples, classes, float(plane.offsets[-1]), epsilon, title)
    return Figure("figure4", title, _caption(left_out, guide, plane, epsilon), drawn, _frame(maps, plane, classes))


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
    described = {
        "what": "direction",
        "model": models.identity(name),
        "engine": models.engine(name),
        "images": examples.fingerprint,
        "epsilon": epsilon,
        "seed": models.contest.spec.seed,
    }
    return kept(described, lambda: {"directions": models.direction(name, examples, epsilon)})["directions"]


def _mapped(models: Models, name: str, plane: Plane, say: Callable[[str], None]) -> np.ndarray:
    """What a model says around every example (N×points×points); each map is kept as soon as it is there."""
    described = {"what": "map", "model": models.identity(name), "plane": plane.fingerprint}
    parts = [{**described, "example": number} for number in range(len(plane.examples))]
    to_do = sum(not is_kept(part) for part in parts)
    predict = models.predict(name) if to_do else None
    with progress_lines(say)(f"mapping {name}", to_do * len(plane.offsets)) as progress:

        def compute(example: int) -> Arrays:
            assert predict is not None
            return {"classes": classes_around(plane, example, predict, progress.advance)}

        found = [kept(part, functools.partial(compute, number))["classes"] for number, part in enumerate(parts)]
    return np.stack(found)


def classes_around(plane: Plane, example: int, predict: Predict, advance: Callable[[float], None]) -> np.ndarray:
    """What a model says at every point of a map (points×points), the largest vertical offset in the first row."""
    rows = []
    for offset in plane.offsets[::-1]:
        rows.append(predict(plane.row(example, float(offset))).astype(np.int16))
        advance(1)
    return np.stack(rows)


def _caption(left_out: Mapping[str, str], guide: str, plane: Plane, epsilon: float) -> str:
    reach = f"{plane.offsets[-1]:g}"
    guided = "" if guide == ADVERSARIAL else ", in place of at-l2, which is not trained yet"
    parts = [
        f"Every point is an image, its colour the class that a model gives it. In the middle of a map is an example, to "
        f"its right the direction in which PGD makes {guide} err{guided}, upwards one random direction, the same for "
        f"all, both {reach} far in L2; images are cut off to [0,1]. The circle is ε = {words.epsilon(epsilon)}."
    ]
    for name, reason in left_out.items():
        parts.append(f"{TITLES[name].replace('  ', ' (')}) is left out: {reason}.")
    return " ".join(parts)


def _frame(maps: Mapping[str, np.ndarray], plane: Plane, classes: Sequence[str]) -> pd.DataFrame:
    """One row a point."""
    frames = []
    for name, found in maps.items():
        example, row, column = np.indices(found.shape).reshape(3, -1)
        frames.append(
            pd.DataFrame(
                {
                    "model": name,
                    "example": plane.places[example],
                    "horizontal": plane.offsets[column].round(6),
                    "vertical": plane.offsets[::-1][row].round(6),
                    "class": np.array(classes)[found.ravel()],
                }
            )
        )
    return pd.concat(frames, ignore_index=True)
