"""Norms as values: all that is said of a norm anywhere, found by its name through the entry-point group `bench.norms`.

`linf` and `l2` are registered as anybody's are (`attacks/norms.py`). A `Norm` is light: it is what specs, the referee, the
store and pages need, and loading it imports no TensorFlow. Its `Ball` is what attacks and adversarial training compute
with, and is made where they run.
"""

from __future__ import annotations

import abc
import functools
import math
import re
from typing import TYPE_CHECKING, Literal

from bench import entry_points
from bench.entry_points import Entry, Group, did_you_mean
from bench.errors import BenchError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

TINY = 1e-12
_NAME = re.compile(r"[a-z][a-z0-9-]{0,9}")  # what the store's column, a file name and an HTML id can hold


class Norm(abc.ABC):
    """How far an adversarial image is from its original, and what that distance is called."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What it is called in requests, presets and the store: the name of its entry point, at most 10 characters."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """What people read: L∞."""

    @property
    @abc.abstractmethod
    def latex(self) -> str:
        """The label in LaTeX."""

    order: float | None = None
    """The p of an Lp norm, by which other libraries know it; None for any other norm."""

    place: int = 100
    """Where it stands among norms, the lowest first; norms of one place by name."""

    @abc.abstractmethod
    def distance(self, images: np.ndarray, adversarial: np.ndarray) -> np.ndarray:
        """The distance of every adversarial image from its original, in float64: N×H×W×C twice to N."""

    @staticmethod
    def changes(images: np.ndarray, adversarial: np.ndarray) -> np.ndarray:
        """By how much every value was changed, in float64: N×H×W×C twice to N×(H·W·C)."""
        delta: np.ndarray = adversarial.astype("float64") - images.astype("float64")
        return delta.reshape(len(images), -1)

    @abc.abstractmethod
    def ball(self) -> Ball:
        """What attacks and adversarial training compute with; imports TensorFlow."""


class Ball(abc.ABC):
    """The images around an image that are no further than epsilon in a norm, and how to move among them.

    An image is "inside" when it is in [0,1] and no further than epsilon from its origin. Perturbations, gradients and
    images are B×H×W×C; sizes are B; epsilon is a scalar or B. What belongs to an example must have the same bits
    whatever the batch around it.

    Not every norm has all of it: `dual`, `profile` and `square_moves` may be left out, and engines that cannot do
    without them refuse the norm.
    """

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    @property
    @abc.abstractmethod
    def rule(self) -> Literal["adam", "sign"]:
        """The step rule with which PGD is strongest in this ball: Adam, or the steepest direction."""

    @property
    def name(self) -> str:
        """The norm's name."""
        return self.norm.name

    def has(self, optional: str) -> bool:
        """Whether a method that may be left out is there."""
        return getattr(type(self), optional) is not getattr(Ball, optional)

    @abc.abstractmethod
    def size(self, perturbation: tf.Tensor) -> tf.Tensor:
        """The norm of each perturbation: B×H×W×C to B."""

    @abc.abstractmethod
    def shrink(self, perturbation: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """The nearest perturbation in the ball, without regard to [0,1]."""

    @abc.abstractmethod
    def steepest(self, gradient: tf.Tensor) -> tf.Tensor:
        """The direction of size 1 in which the loss rises fastest; zero where the gradient is zero."""

    @abc.abstractmethod
    def inside(self, seeds: tf.Tensor, shape: list[int]) -> tf.Tensor:
        """One draw per seed (B×2), uniform in the unit ball: B×shape."""

    def surface(self, seeds: tf.Tensor, shape: list[int]) -> tf.Tensor:
        """One draw per seed (B×2), of size 1, as AutoAttack draws its starts: B×shape."""
        import tensorflow as tf

        drawn = self.inside(seeds, shape)
        return drawn / tf.maximum(self.size(drawn), TINY)[:, None, None, None]

    def project(self, images: tf.Tensor, origin: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """Images into the ball around `origin` and into [0,1].

        The clip to [0,1] comes last; it moves every value towards the origin's, so it never leaves the ball.
        """
        import tensorflow as tf

        return tf.clip_by_value(origin + self.shrink(images - origin, epsilon), 0.0, 1.0)

    def random_start(self, origin: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """A point drawn uniformly from the ball around each image, then put into [0,1]."""
        return self.project(origin + epsilon * self.inside(seeds, list(origin.shape[1:])), origin, epsilon)

    def dual(self, gradient: tf.Tensor) -> tf.Tensor:
        """The dual norm of each gradient: how fast a linear function falls along `steepest`. B×H×W×C to B."""
        raise NotImplementedError

    def profile(self, gradient: tf.Tensor) -> tf.Tensor:
        """How fast each value moves, without sign, on the shortest way to a plane with this normal."""
        raise NotImplementedError

    def square_moves(self, shape: tuple[int, int, int]) -> SquareMoves:
        """What Square proposes in this ball, for images of one shape (H, W, C)."""
        raise NotImplementedError

    # Adversarial training has one draw per batch, and no need for the same bits in another batch.

    def training_start(self, images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Where the inner attack of adversarial training starts, from the images and in units of epsilon."""
        import tensorflow as tf

        drawn = tf.random.stateless_uniform(tf.shape(images), seed, -1.0, 1.0)
        drawn = tf.ensure_shape(drawn, images.shape)
        return drawn / tf.maximum(self.size(drawn), TINY)[:, None, None, None]

    def training_direction(self, gradient: tf.Tensor) -> tf.Tensor:
        """Where it steps, in units of its step size."""
        return self.steepest(gradient)

    def training_shrink(self, perturbation: tf.Tensor, epsilon: float) -> tf.Tensor:
        """How it stays in the ball, without regard to [0,1]."""
        return self.shrink(perturbation, epsilon)


class SquareMoves(abc.ABC):
    """Square's proposals in one ball, for images of one shape.

    Every number drawn is uniform in [0,1) and belongs to one example. Images are B×H×W×C.
    """

    per_step: int
    """Numbers drawn for one proposal, besides one per channel."""

    def __init__(self, ball: Ball, shape: tuple[int, int, int]) -> None:
        self.ball = ball
        self.height, self.width, self.channels = shape

    def draws(self) -> int:
        """How many numbers one proposal needs."""
        return self.per_step + self.channels

    @abc.abstractmethod
    def sides(self, shares: np.ndarray) -> np.ndarray:
        """The window's side for shares of the image's area."""

    @abc.abstractmethod
    def start(self, origin: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """The first images."""

    @abc.abstractmethod
    def propose(
        self, images: tf.Tensor, origin: tf.Tensor, epsilon: tf.Tensor, drawn: tf.Tensor, side: tf.Tensor
    ) -> tf.Tensor:
        """New images from the best ones, with numbers drawn (B×draws) and the window's side."""


GROUP: Group[Norm] = Group("norms", "norm", (Norm,), light=True)


@functools.cache
def entries() -> dict[str, Entry[Norm]]:
    """Every registered norm by name, not loaded."""
    return entry_points.entries(GROUP)


def named(name: str) -> Norm:
    """The norm of this name; an unknown one is refused."""
    known = entries()
    if not isinstance(name, str) or name not in known:
        raise UsageError(f"unknown norm '{name}'{did_you_mean(str(name), known)}; there are {', '.join(known)}")
    return _made(known[name])


@functools.cache
def _made(entry: Entry[Norm]) -> Norm:
    name = entry.name
    what = f"norm '{name}' of package {entry.package}"
    kind = entry.load()
    try:
        norm = kind()
    except TypeError as error:
        raise BenchError(f"{what} cannot be made: {error}") from error
    if norm.name != name or not _NAME.fullmatch(name):
        raise BenchError(
            f"{what} calls itself '{norm.name}': the name of a norm is that of its entry point, 1 to 10 lower-case "
            "letters, digits and hyphens, a letter first"
        )
    return norm


def names() -> tuple[str, ...]:
    """The names of all norms, in their order."""
    return tuple(sorted(entries(), key=place))


def place(name: str) -> tuple[float, str]:
    """What norms are sorted by. A stored norm that is not installed here comes last."""
    return (named(name).place if name in entries() else math.inf), name


def label(name: str) -> str:
    """What people read for a stored norm; of one that is not installed here, its name and that it is not."""
    return named(name).label if name in entries() else f"{name} (norm not installed here)"
