"""Which network a classifier is, as a value: a registered network's name and version with all its settings.

It is what recipes, artifacts and the set-ups of other processes carry; the network itself is made from it on use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench import registry
from bench.api import BenchError, Network, Plugin, Shape, UsageError
from bench.entry_points import Entry
from bench.support.fingerprint import fingerprint

if TYPE_CHECKING:
    import keras
    import numpy as np


class NotInstalled(UsageError):
    """A network that is not registered here, or in another version only."""


LONGEST = 100  # values of one setting that are taken from somebody else's results
_READ = {"name": str, "version": str, "settings": Mapping}
_READ_AS = {"name": "text", "version": "text", "settings": "a table"}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A network by name, with plain values for settings. Made by `named`, which completes and checks them."""

    name: str
    version: str
    settings: Mapping[str, Any]

    @classmethod
    def named(cls, name: str, settings: Mapping[str, Any] | None = None) -> Architecture:
        """The network of this name with these settings, and its defaults for the others."""
        cls._entry(name)
        return cls._of(name, registry.network(name, settings or {}))

    @staticmethod
    def _entry(name: str) -> Entry[Plugin]:
        try:
            return registry.entry("networks", name)
        except UsageError as error:
            raise NotInstalled(str(error)) from None

    @classmethod
    def _of(cls, name: str, network: Network) -> Architecture:
        return cls(name, network.version, dataclasses.asdict(network.settings))

    @classmethod
    def read(cls, given: Any) -> Architecture:
        """From `name[setting=value,…]`, or from what `as_json` gave."""
        if isinstance(given, str):
            return cls.named(*registry.parse(given))
        if not isinstance(given, Mapping) or not _READ.keys() >= given.keys() >= {"name"}:
            raise UsageError(f"network is {given!r}; give 'name[setting=value,…]', or a table of name and settings")
        for field, value in given.items():
            if not isinstance(value, _READ[field]):
                raise UsageError(f"network: {field} is {value!r}; it must be {_READ_AS[field]}")
        version = cls._entry(given["name"]).load().version
        if given.get("version", version) != version:
            raise NotInstalled(f"network {given['name']} is of version {version} here, not {given['version']}")
        return cls.named(given["name"], given.get("settings"))

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "settings": dict(self.settings)}

    def __str__(self) -> str:
        """As one asks for it."""
        settings = ",".join(f"{name}={_text(value)}" for name, value in self.settings.items())
        return f"{self.name}[{settings}]" if settings else self.name

    @property
    def _network(self) -> Network:
        return registry.network(self.name, self.settings)

    def build(self, shape: Shape, classes: int) -> keras.Model:
        """Transformed images (B×H×W×C, of this shape) to logits (B×classes), with random weights."""
        model = self._network.build(shape, classes)
        if tuple(model.input_shape) != (None, *shape) or tuple(model.output_shape) != (None, classes):
            raise BenchError(
                f"network {self} was asked for a model from {(None, *shape)} to {(None, classes)}, and built one from "
                f"{model.input_shape} to {model.output_shape}"
            )
        return model

    def reads(self, shape: Shape, classes: int) -> bool:
        """Whether it can be built for inputs of this shape: a network of fixed sizes reads one alone."""
        try:
            self.build(shape, classes)
        except BenchError:
            return False
        return True

    def cost(self, shape: Shape, classes: int) -> int:
        """The multiplications of a forward pass over one image."""
        return self._network.cost(shape, classes)

    def prepare(self, model: keras.Model, images: np.ndarray) -> None:
        """Sets what of a new model's weights comes from the training images (N×H×W×3, uint8)."""
        self._network.prepare(model, images)

    def picture_layer(self) -> str | None:
        """The layer whose output is laid out like the image, if there is one."""
        return self._network.picture_layer()

    def code(self) -> str | None:
        """The code that building it runs, if its settings name any."""
        return self._network.code()

    def timed_by(self) -> Architecture:
        """A cheaper one of its kind, to be timed in its place; itself where it has none."""
        return self._of(self.name, self._network.timed_by())

    def check_limits(self) -> None:
        """Raises UsageError if it is larger than what is taken from somebody else's results."""
        limits = self._network.limits
        for name, value in self.settings.items():
            values = value if isinstance(value, list | tuple) else [value]
            if len(values) > LONGEST:
                raise UsageError(f"network {self.name}: {name} has {len(values)} values; {LONGEST} are the most here")
            if name in limits and any(one > limits[name] for one in values):
                raise UsageError(
                    f"network {self}: {name} is above {limits[name]}, the most that is taken from elsewhere"
                )


def _text(value: Any) -> str:
    text = "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= LONGEST else f"sha256:{fingerprint(text)[:12]}"
