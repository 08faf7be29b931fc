"""How a classifier is trained: everything that determines its weights besides the data, the defence and the key.

A recipe's JSON is part of the fingerprint of what it trained. A new field says by `since` which version
it came with: at its default, which is what was done before, it is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from bench.api import UsageError
from bench.data.datasets import Split
from bench.models.adversary import Adversary
from bench.models.architecture import Architecture
from bench.registry import did_you_mean
from bench.spec import Spec
from bench.support import versioned
from bench.support.versioned import since

NETWORK = "network"
FLAT_NETWORK = ("wide-resnet", "1")
FLAT_SETTINGS = ("depth", "width")
"""Before there were other networks, a recipe had these two fields. So it is still, in presets and in JSON: the settings
of this network stand among the recipe's own fields, and any other network stands under `network`."""

_CHOICES: Mapping[str, tuple[str | int, ...]] = types.MappingProxyType({
    "schedule": ("step", "cosine", "linear"),
    "border": ("zeros", "reflect"),
    "flips": ("random", "alternating"),
    "augment": ("image", "picture"),
    "copy_bits": (8, 16),
})  # fmt: skip
_NOT_NEGATIVE = (
    "weight_decay", "copies", "images", "first_rate", "last_rate", "offset_rate", "shift", "lookahead", "statistics",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a training does, step by step; docs/presets.md says what the fields mean."""

    network: Architecture = field(default_factory=lambda: Architecture.named(FLAT_NETWORK[0]))
    epochs: int = 1000
    batch_size: int = 1024
    slices: int = 1
    """A batch is cut into so many parts that go through the network side by side, each with batch statistics of its own."""
    learning_rate: float = 0.4
    schedule: str = "step"
    drops: tuple[float, ...] = (0.65, 0.8, 0.9, 0.95)
    warmup: float = 0.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    average: float = 0.995
    cutmix: bool = True
    crop_and_flip: bool = True
    seed: int = 0
    adversary: Adversary | None = field(default=None, metadata=since(2))
    """For adversarial training: what is done to the images before they are learned from."""
    copies: int = field(default=0, metadata=since(3))
    """Transform so many versions of the training images once and keep them, instead of transforming at every step:
    the images, their mirror images, then random crops. For a transform that costs more than the network."""
    images: int = field(default=0, metadata=since(4))
    """Learn from the first so many training images only; 0 is all of them."""
    first_rate: float = field(default=0.0, metadata=since(5))
    """The rate that the warm-up begins with, as a share of `learning_rate`."""
    last_rate: float = field(default=0.0, metadata=since(5))
    """The rate that the schedule `linear` ends with, as a share of `learning_rate`."""
    offset_rate: float = field(default=1.0, metadata=since(5))
    """The rate of the offsets of batch normalisations, in units of everybody else's."""
    label_smoothing: float = field(default=0.0, metadata=since(5))
    """The share of a label that is spread over all classes."""
    shift: int = field(default=4, metadata=since(5))
    """By how many pixels `crop_and_flip` moves an image at most."""
    border: str = field(default="zeros", metadata=since(5))
    """What moves in from outside: `zeros`, or the image's own pixels, `reflect`ed."""
    flips: str = field(default="random", metadata=since(5))
    """`random`, or `alternating`: an image that is mirrored in one epoch is not in the next."""
    augment: str = field(default="image", metadata=since(5))
    """What is shifted, flipped and mixed: the `image`, or the `picture` that the network's front makes of its transform."""
    lookahead: int = field(default=0, metadata=since(5))
    """Every so many steps the weights are set back to their average, which forgets by `average` per step at the end."""
    statistics: int = field(default=0, metadata=since(5))
    """At the end, take the statistics of batch normalisations again, over so many batches of images as they are."""
    bfloat16: bool = field(default=False, metadata=since(5))
    """Compute convolutions in bfloat16 while training, where the processor does."""
    copy_bits: int = field(default=16, metadata=since(5))
    """Bits per number of `copies`: 16, or 8 for whole numbers in each channel's own range."""

    def __post_init__(self) -> None:
        for name, holds, rule in self._rules():
            if not holds:
                raise UsageError(f"training: {name} is {getattr(self, name)}; {rule} (docs/presets.md)")

    def _rules(self) -> Iterator[tuple[str, bool, str]]:
        """A field, whether what must hold of it does, and what must."""
        yield "epochs", self.epochs >= 1, "epochs must be at least 1"
        yield "batch_size", self.batch_size >= 1, "batch_size must be at least 1"
        yield "slices", self.slices >= 1, "slices must be at least 1"
        yield "slices", self.batch_size % self.slices == 0, f"slices must divide batch_size, {self.batch_size}"
        yield "learning_rate", self.learning_rate > 0, "learning_rate must be above 0"
        for name, choices in _CHOICES.items():
            yield name, getattr(self, name) in choices, f"{name} must be {' or '.join(map(str, choices))}"
        for name in ("warmup", "momentum", "average", "label_smoothing"):
            yield name, 0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1"
        for name in _NOT_NEGATIVE:
            yield name, getattr(self, name) >= 0, f"{name} must not be below 0"
        changed = "cutmix" if self.cutmix and self.augment == "image" else "an adversary" if self.adversary else ""
        yield "copies", not (self.copies and changed), f"kept copies go without {changed}, which changes images anew"
        if self.augment == "picture":
            yield "augment", not self.adversary, "an adversary changes images, before there is a picture"
            yield "augment", self.network.picture_layer() is not None, f"{self.network} makes no picture"

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Recipe:
        """A recipe from what JSON or TOML made of one; what is wrong with a field is named."""
        rest: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in fields.items()}
        network = _take_network(rest)
        types_of = _types()
        for name, value in rest.items():
            if name not in types_of:
                known = sorted({*types_of, NETWORK, *FLAT_SETTINGS})
                raise UsageError(
                    f"training has no field '{name}'{did_you_mean(name, known)}; it has {', '.join(known)}"
                )
            if name == "adversary" and isinstance(value, Mapping):
                rest[name] = _adversary(value)
            elif not _fits(value, types_of[name]):
                raise UsageError(f"training: {name} is {value!r}; it must be of type {_called(types_of[name])}")
        return cls(network=network, **rest)

    def as_json(self) -> dict[str, Any]:
        """What is fingerprinted: fields that came later are left out at their default, so that old weights count."""
        fields = {name: value for name, value in versioned.as_json(self).items() if name != NETWORK}
        if (self.network.name, self.network.version) == FLAT_NETWORK:
            return {**self.network.settings, **fields}
        return {NETWORK: self.network.as_json(), **fields}

    def learnt_from(self, data: Split) -> Split:
        """What of the training images it uses."""
        return data.first(self.images) if self.images else data

    def rate(self, progress: float) -> float:
        """The learning rate when this share of the training is done."""
        if progress < self.warmup:
            return self.learning_rate * (self.first_rate + (1 - self.first_rate) * (progress / self.warmup))
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + float(np.cos(np.pi * (progress - self.warmup) / (1 - self.warmup))))
        if self.schedule == "linear":
            return self.learning_rate * (1 - (1 - self.last_rate) * (progress - self.warmup) / (1 - self.warmup))
        return self.learning_rate * 0.1 ** sum(progress >= drop for drop in self.drops)


def of_run(run: Spec, *names: str) -> tuple[Recipe, str | None]:
    """A run's recipe under the first of these names that its preset knows, and which classifier it starts from.

    The recipe is `[training]` with what differs from it over it. What names a network there replaces the one here.
    """
    changes, start = run.recipe(*names)
    base = dict(run.training)
    if NETWORK in changes:
        base = {name: value for name, value in base.items() if name not in FLAT_SETTINGS}
    elif any(name in changes for name in FLAT_SETTINGS):
        base.pop(NETWORK, None)
    return Recipe.from_json({**base, **changes}), start


def network_of(fields: Mapping[str, Any]) -> Architecture:
    """The network of a recipe's JSON, whatever else the recipe says: all that is needed to load what it trained."""
    return _take_network(dict(fields))


def _take_network(fields: dict[str, Any]) -> Architecture:
    """Takes what says which network it is out of a recipe's fields."""
    flat = {name: fields.pop(name) for name in FLAT_SETTINGS if name in fields}
    if NETWORK not in fields:
        return Architecture.named(FLAT_NETWORK[0], flat)
    network = Architecture.read(fields.pop(NETWORK))
    if flat:
        raise UsageError(
            f"training: {' and '.join(flat)} and network are given; {next(iter(flat))} belongs to {FLAT_NETWORK[0]} "
            f"without network: write network = '{network.name}[setting=value,…]' with all its settings"
        )
    return network


def _adversary(fields: Mapping[str, Any]) -> Adversary:
    known = typing.get_type_hints(Adversary)
    for name, value in fields.items():
        if name not in known:
            raise UsageError(f"training: the adversary has no field '{name}'; it has {', '.join(known)}")
        if not _fits(value, known[name]):
            raise UsageError(
                f"training: the adversary's {name} is {value!r}; it must be of type {_called(known[name])}"
            )
    if missing := {"norm", "epsilon"} - fields.keys():
        raise UsageError(f"training: the adversary needs {' and '.join(sorted(missing))}")
    return Adversary(**fields)


@functools.cache
def _types() -> Mapping[str, Any]:
    hints = typing.get_type_hints(Recipe)
    return types.MappingProxyType({f.name: hints[f.name] for f in dataclasses.fields(Recipe) if f.name != NETWORK})


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value of JSON is of a field's type. It is kept as it is: 1 and 1.0 are two fingerprints."""
    if typing.get_origin(wanted) is tuple:
        return isinstance(value, tuple) and all(_fits(part, typing.get_args(wanted)[0]) for part in value)
    if isinstance(wanted, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(wanted))
    if isinstance(value, bool) or wanted is bool:
        return isinstance(value, bool) and wanted is bool
    return isinstance(value, (int, float) if wanted is float else wanted)


def _called(wanted: Any) -> str:
    return getattr(wanted, "__name__", str(wanted)) if typing.get_origin(wanted) is None else str(wanted)
