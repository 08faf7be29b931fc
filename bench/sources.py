"""Sources: models an attacker can compute with. Plug-ins find everything here in `bench.api`."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from bench.batches import each_image

if TYPE_CHECKING:
    import tensorflow as tf

Loss = Callable[..., "tf.Tensor"]
"""loss(logits (B×classes), labels (B), ...) gives one number per example (B). Further arguments are B×... tensors."""


@dataclasses.dataclass(frozen=True)
class Gradient:
    """A loss at some images, with its gradient."""

    loss: tf.Tensor  # B
    logits: tf.Tensor  # B×classes
    gradient: tf.Tensor  # B×H×W×3


class Source(abc.ABC):
    """A model the attacker can compute with.

    Both methods may be called inside a `tf.function`, with any batch size, and give the same numbers for an
    image whatever its companions are.
    """

    name: str
    exact: bool = False
    """Whether the source is the defended model itself: then a success on it is a success, and attacks may stop."""
    has_gradient: bool = True

    @abc.abstractmethod
    def logits(self, images: tf.Tensor) -> tf.Tensor:
        """Images (B×H×W×3 in [0,1]) to logits (B×classes)."""

    @abc.abstractmethod
    def gradient(self, loss: Loss, images: tf.Tensor, *labels: tf.Tensor) -> Gradient:
        """`loss(logits, *labels)` for every image, and its gradient with respect to that image."""


LAST_PLACE = 1000
"""The place in tables of what does not ask for another."""

Stage = Literal["bypass", "defence", "reconstruction"]


@dataclasses.dataclass(frozen=True)
class SourceDescription:
    """What a source is, as its strategy describes it: read by plans and estimates, stored, and shown on pages."""

    kind: str
    """What it is one of, `surrogate` for surrogate:3: presets have budgets and pages have explanations by kind."""
    label: str = ""
    """What people call the kind, if not by its name."""
    meaning: str = ""
    """What the kind is, in half a sentence, for readers of the pages."""
    place: int = LAST_PLACE
    """Where the kind stands in tables, the lowest first; those of one place stand by name."""
    members: tuple[str, ...] = ()
    """The sources it is made of, if it is several at once; one that is named twice is two models of its kind."""
    through: tuple[Stage, ...] = ("defence",)
    """What an image passes through before the network, and a gradient after it: nothing for a network on plain images."""
    answers_as: str = ""
    """The source whose logits these are, if only its gradients are others: engines without gradients run on that one."""
    trained: bool = True
    """Whether the attacker trains something for it, beyond what its members need."""
    recipes: tuple[str, ...] | None = None
    """The roles (of `Workshop`) by whose recipes it may have been trained: with other recipes it is another source.
    None where it may be any of them."""


def kind_of(source: str) -> str:
    """A source's name without its number: `surrogate` of surrogate:3."""
    return source.partition(":")[0]


class ModelSource(Source):
    """Any differentiable function of images (B×H×W×C in [0,1]) that gives logits (B×classes)."""

    def __init__(
        self,
        name: str,
        forward: Callable[[tf.Tensor], tf.Tensor],
        exact: bool = False,
        has_gradient: bool = True,
    ) -> None:
        self.name = name
        self.forward = forward
        self.exact = exact
        self.has_gradient = has_gradient

    def logits(self, images: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return each_image(self.forward, images, signature=tf.TensorSpec([None], tf.float32))

    def gradient(self, loss: Loss, images: tf.Tensor, *labels: tf.Tensor) -> Gradient:
        import tensorflow as tf

        def one(image: tf.Tensor, *label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(image)
                logits = self.forward(image)
                value = loss(logits, *label)
            # A forward pass that cuts the path back (a quantised input) has a gradient of zero, not none.
            gradient = tape.gradient(value, image, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return value, logits, gradient

        signature = (
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec(images.shape[1:], tf.float32),
        )
        value, logits, gradient = each_image(one, images, *labels, signature=signature)
        return Gradient(value, logits, gradient)
