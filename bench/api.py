"""The contract between the harness and its plug-ins: everything a defence or an attack may import from `bench`.

Nothing here imports TensorFlow at run time, so names can be listed without loading it.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bench import flags as flags
from bench import norms
from bench.attacker_keys import attacker_key as attacker_key
from bench.batches import each_image as each_image
from bench.errors import BenchError as BenchError
from bench.errors import UsageError as UsageError
from bench.health import Finding as Finding
from bench.health import HealthBudget as HealthBudget
from bench.norms import Ball as Ball
from bench.norms import Norm as Norm
from bench.norms import SquareMoves as SquareMoves
from bench.sources import LAST_PLACE as LAST_PLACE
from bench.sources import Gradient as Gradient
from bench.sources import Loss as Loss
from bench.sources import ModelSource as ModelSource
from bench.sources import Source as Source
from bench.sources import SourceDescription as SourceDescription
from bench.sources import Stage as Stage
from bench.sources import kind_of as kind_of

if TYPE_CHECKING:
    import keras
    import numpy as np
    import tensorflow as tf

Shape = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """The settings of a plug-in that has none."""


class Plugin(abc.ABC):  # noqa: B024 (what must be written is in its subclasses)
    """What defences, engines, strategies and networks share: a settings class, and a version that enters every fingerprint.

    The first line of a plug-in class's docstring is its description in `bench list`.
    """

    Settings: ClassVar[type] = NoSettings
    version: ClassVar[str] = "1"
    in_all: ClassVar[bool] = True
    """Whether `all` means it too; one that is a part or a variant of another is asked for by name."""
    beyond: ClassVar[bool] = False
    """Whether it goes beyond the published evaluation: behind `everything`, and marked so."""

    def __init__(self, settings: Any = None) -> None:
        self.settings = self.Settings() if settings is None else settings


class Defence(Plugin):
    """A transform t(x; key) of the input, in front of a classifier that is trained on transformed images.

    A defence object holds the algorithm and its settings, never a key.
    """

    keyed: ClassVar[bool] = False
    """Whether the transform needs a secret. If it does, attacks never compute it with the true key."""

    gradient: ClassVar[Literal["exact", "bpda"]] = "exact"
    """What `transform` backpropagates: its true gradient, or a stand-in written for BPDA."""

    def fit(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Learns what the transform needs from the training images (N×H×W×3, [0,1]), kept with the classifier."""
        return {}

    @abc.abstractmethod
    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        """Images (B×H×W×3, [0,1], float32) to what the classifier reads (B×H'×W'×C); differentiable or straight-through.

        `key` is a signed 64-bit integer (None for a keyless defence); `state` is what `fit` gave.
        """

    def output_shape(self, shape: Shape) -> Shape:
        """The shape of one transformed image, given the shape of one image."""
        return shape

    def bypass(self, shape: Shape) -> keras.Model:
        """h_psi: the attacker's trainable stand-in for the transform, from one image's shape to `output_shape`."""
        import keras

        height, width, channels = self.output_shape(shape)
        if (height, width) != shape[:2]:
            raise NotImplementedError(f"{type(self).__name__} changes the image size: give it a bypass of its own")
        return keras.Sequential([keras.Input(shape), keras.layers.Conv2D(channels, 3, padding="same", name="bypass")])

    def smooth(self, images: tf.Tensor, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        """A differentiable form of a keyless `transform`, of its shape and about its values, for BPDA to go back through."""
        raise NotImplementedError(f"{type(self).__name__} has no differentiable form")

    def transform_and_reconstruction(self, images: np.ndarray, key: int | None) -> tuple[np.ndarray, np.ndarray]:
        """What `transform` gives of images (B×H×W×3, [0,1]) and what that of the variant of `reconstruction` gives, where
        one computation gives both; only then is it to be written."""
        raise NotImplementedError(f"{type(self).__name__} computes the two apart")

    def reconstruction(self) -> Mapping[str, Any] | None:
        """The settings of a variant that gives back an image much like the input, for surrogates attacked by BPDA."""
        return None


class Network(Plugin):
    """A classifier's architecture: with its settings, what is built, trained and loaded behind a defence's transform.

    Weights are kept under the names of the layers, and found by those names again: a network that is built twice has
    the same layers both times.
    """

    limits: ClassVar[Mapping[str, float]] = {}
    """The largest values of its settings that are taken from somebody else's results: `bench import` builds what they
    describe. A setting of several numbers is held to it number by number; one that is not named here has no limit."""

    @abc.abstractmethod
    def build(self, shape: Shape, classes: int) -> keras.Model:
        """A model from what the transform gives (B×H×W×C, of this shape) to logits (B×classes), with random weights.

        They come from Keras's generators, which the harness seeds (`keras.utils.set_random_seed`).
        """

    @abc.abstractmethod
    def cost(self, shape: Shape, classes: int) -> int:
        """The multiplications of a forward pass over one image, of its convolutions and matrix products."""

    def prepare(self, model: keras.Model, images: np.ndarray) -> None:
        """Sets those weights of a new model that come from the training images (N×H×W×3, uint8), before it is trained.

        The images are as they are before any transform: what a keyed transform gives must not be told by fixed weights.
        """

    def picture_layer(self) -> str | None:
        """The layer, if there is one, whose output is laid out like the image: recipes may shift and flip it there."""
        return None

    def code(self) -> str | None:
        """The code that its settings name and that building it runs, if there is any: with somebody else's results it
        is run only where the user names it too (`bench import --factory`)."""
        return None

    def timed_by(self) -> Network:
        """A cheaper one of its kind, for `bench plan`: its time, times the ratio of their costs, stands for this one's."""
        return self


@dataclasses.dataclass(frozen=True)
class Batch:
    """What an engine attacks: some examples, and the ball it may move them in."""

    images: np.ndarray  # N×H×W×3, float32, [0,1]
    labels: np.ndarray  # N, int32
    seeds: np.ndarray  # N×2, int32: all the randomness an example may use, as a seed for tf.random.stateless_*
    norm: str  # the name of a registered norm
    epsilon: float
    batch_size: int = 64  # how many examples at once; never changes a result

    def __post_init__(self) -> None:
        norms.named(self.norm)  # an unknown one is refused

    @property
    def ball(self) -> Ball:
        """What the norm's steps and projections are computed with."""
        return norms.named(self.norm).ball()


@dataclasses.dataclass(frozen=True)
class Attacked:
    """What an engine gives back: one entry per example, in the order of the batch."""

    images: np.ndarray  # N×H×W×3, float32
    success: np.ndarray  # N, bool: misclassified by the source
    margin: np.ndarray  # N, float32: z_y − max other z, on the source, at `images`; negative is a success
    restart: np.ndarray  # N, int32: the restart that found `images`; −1 where it does not apply
    target: np.ndarray  # N, int32: the class aimed at; −1 for untargeted
    gradients: np.ndarray  # N, int64: gradient computations spent
    queries: np.ndarray  # N, int64: forward passes without a gradient spent
    part: np.ndarray | None = None  # N, int32: the place in `Engine.parts` of the one that broke the example; else −1
    flags: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Signs that the result may flatter the defence (`bench.api.flags`): the number of examples each concerns.

    Names are of letters, digits and ` ._:+-`, up to 80; there are at most 100."""
    examined: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """On how many examples a flag was looked for, where that was not done on all of them: what probes say."""


Report = Callable[[int], None]
"""Called by an engine with the amount of work done since the last call, out of `Engine.work`."""


class Attack(Plugin):
    """What engines and strategies share: how people read of them."""

    label: ClassVar[str] = ""
    """What people call it, if not by the name it is registered under."""
    meaning: ClassVar[str] = ""
    """What it does, in half a sentence, for readers of the pages; by default its description in `bench list`."""
    place: ClassVar[int] = LAST_PLACE
    """Where it stands in tables, the lowest first; those of one place stand by name."""

    @classmethod
    def explanation(cls) -> str:
        """What it does, in its own words."""
        return cls.meaning or (cls.__doc__ or "").strip().split("\n")[0]


class Engine(Attack):
    """Makes adversarial images against a source."""

    needs_gradient: ClassVar[bool] = True
    budget: ClassVar[tuple[str, ...]] = ()
    """The settings that say how much it tries; their defaults are what it was published with, and less is called reduced."""
    parts: Mapping[str, Engine] = MappingProxyType({})
    """The engines it is made of, by name and in their order, if it is made of several."""

    def work(self, examples: int) -> int:
        """The amount of work in attacking so many examples, in units of `report`."""
        return examples

    @abc.abstractmethod
    def run(self, source: Source, batch: Batch, report: Report) -> Attacked:
        """Attacks every example of the batch. The harness judges the result itself: see the referee."""


class Probe(Plugin):
    """A check whether attacks on a source can be believed: of the source itself, once per ball, or of an attack on it.

    Every example is judged by itself, with its own seed, so that no batch or shard changes what is found.
    """

    def of_source(self, source: Source, batch: Batch, budget: HealthBudget) -> Mapping[str, Finding]:
        """What of a source with gradients, on these examples, speaks against attacks on it: by the name of a flag."""
        return {}

    def of_attack(self, source: Source, batch: Batch, attacked: Attacked) -> Mapping[str, Finding]:
        """What speaks against the result of an attack with gradients on these examples; it may cost little."""
        return {}


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What the threat model gives an attacker: everything but the key.

    The defence's algorithm, settings and fitted state; the classifier with its weights; the training set; and the
    means to train models of one's own, kept between runs.
    """

    defence: Defence
    defence_name: str
    state: Mapping[str, np.ndarray]
    classifier: keras.Model
    shape: Shape
    classes: int
    workshop: Workshop
    guess: int | None = None
    """A key the attacker has found or been told (`--key-guess`)."""


class Workshop(abc.ABC):
    """What the harness lends an attacker: models trained on the training set alone, kept by fingerprint."""

    @abc.abstractmethod
    def classifier(
        self, defence: str, settings: Mapping[str, Any], key: int | None = None, role: str = ""
    ) -> TrainedClassifier:
        """The classifier of any defence under a key of the attacker's own; trained if it is not there yet.

        `role` (such as `surrogate`, or `at-linf`) picks the preset's recipe for `role:defence` or `role`.
        """

    @abc.abstractmethod
    def front(
        self,
        role: str,
        model: keras.Model,
        after: Callable[[tf.Tensor], tf.Tensor],
        before: Callable[[tf.Tensor], tf.Tensor] | None = None,
        made_of: Mapping[str, Any] | None = None,
    ) -> None:
        """Trains `model` in place so that after(model(before(image))) classifies training images; `after` is frozen.

        What determines it beyond the defended model, the recipe of `role` and the kinds and shapes of the model's
        layers belongs in `made_of`: the seed of its initial weights, for one.
        """

    @abc.abstractmethod
    def user_model(self, name: str) -> keras.Model:
        """A model the user gave with `--source`, from images in [0,1] to logits."""


@dataclasses.dataclass(frozen=True)
class TrainedClassifier:
    """A classifier with the defence in front of it."""

    defence: Defence
    state: Mapping[str, np.ndarray]
    classifier: keras.Model
    fingerprint: str
    key: int | None = None

    def logits(self, images: tf.Tensor) -> tf.Tensor:
        """Images (B×H×W×3 in [0,1]) to logits (B×classes)."""
        return self.classifier(self.defence.transform(images, self.key, self.state), training=False)


class Strategy(Attack):
    """A named group of sources, valid under the threat model of the defences it offers them for."""

    needs_key: ClassVar[bool] = False
    """Whether its sources are computed with the private key: outside every threat model, and run beside the referee."""
    needs_guess: ClassVar[bool] = False
    """Whether its sources are computed with a key that the attacker has found: there are none without `--key-guess`."""
    user_models: ClassVar[bool] = False
    """Whether its sources are the models that the user gives with `--source`."""
    has_gradient: ClassVar[bool] = True
    """Whether its sources have gradients; without, only black-box engines run on them."""

    @abc.abstractmethod
    def sources(self, defence: Defence) -> Sequence[str]:
        """The names of the sources it has against this defence, `kind` or `kind:number`; empty where it does not apply."""

    def describe(self, source: str, defence: Defence) -> SourceDescription:
        """What one of its sources is. By itself a source is taken for the defence with a network behind it."""
        return SourceDescription(kind_of(source))

    def builds(self, defence: Defence, source: str) -> bool:
        """Whether it can build this source against this defence, though `sources` may not name it."""
        return source in self.sources(defence)

    def refusal(self, defence: Defence, source: str) -> str | None:
        """Why this source is outside the defence's threat model, or None if it is inside or not its own."""
        return None

    @abc.abstractmethod
    def build(self, source: str, knowledge: Knowledge) -> Source:
        """Makes the source, training what it needs by `knowledge.workshop`."""
