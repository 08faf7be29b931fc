"""What a vault does for those who do not have the key, and what it is told of a defended model."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bench.api import Shape
from bench.models import catalogue
from bench.models.architecture import Architecture
from bench.models.artifacts import Artifact
from bench.models.catalogue import ClassifierSpec
from bench.support.progress import Say, Track, progress_lines
from bench.vault.referee import Verdict

if TYPE_CHECKING:
    from bench.executors.base import Executor


@dataclasses.dataclass(frozen=True)
class Defended:
    """A defended model, but for its key: what a referee is made of."""

    defence: str
    settings: Mapping[str, Any]
    keyed: bool
    network: Architecture
    weights: Path
    weights_sha256: str
    shape: Shape
    """Of an image, before the transform."""
    classes: int


@dataclasses.dataclass(frozen=True)
class Made:
    """A classifier that was made elsewhere, to be kept: its weights by name, and where it came from."""

    spec: ClassifierSpec
    weights: Mapping[str, np.ndarray]
    origin: Mapping[str, str]
    measured: int
    """Test images that its accuracy is measured on."""


class Judging(Protocol):
    """Somebody who judges with the key: the referee, or one who asks it."""

    def judge(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        adversarial: np.ndarray,
        norm: str,
        epsilon: float,
        rounded: bool = False,
    ) -> Verdict: ...


class Vault(abc.ABC):
    """Has a private key, and does everything that takes one."""

    def __init__(self, id: str, published: bool) -> None:
        self.id, self.published = id, published

    def classifier(self, spec: ClassifierSpec, may_train: bool, say: Say, command: str) -> Artifact:
        """The trained classifier of a defence; trained now, with lines of progress, if it is not there and may be."""
        name = f"the classifier of {spec.defence_name}" + (f" under {spec.key}" if spec.key else "")
        return catalogue.obtained(
            spec,
            may_train,
            command,
            name,
            lambda name, notice: self.train(spec, name, say, progress_lines(say), notice),
        )

    @abc.abstractmethod
    def train(self, spec: ClassifierSpec, name: str, say: Say, track: Track, notice: str = "") -> Artifact:
        """Trains a classifier of this key, unless another process has done so meanwhile; `notice` is said if it does."""

    @abc.abstractmethod
    def keep(self, made: Made) -> Artifact:
        """Keeps a classifier that was made elsewhere, measured with the key."""

    @abc.abstractmethod
    def referee(self, defended: Defended) -> Judging:
        """Who judges this defended model."""

    @abc.abstractmethod
    def executor(self, say: Say) -> Executor:
        """Runs attacks that compute with the key, which is outside every threat model: built-in ones only."""

    @abc.abstractmethod
    def holds(self, content: bytes) -> bool:
        """Whether the key stands in some bytes that are to leave this process."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends what was started for it."""

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
