"""LINAC's fits as the figures need them: by the preset's settings, under keys that are no secret, computed once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bench import registry
from bench.api import Defence
from bench.data.datasets import Split
from bench.models.catalogue import described
from bench.reproduction.gallery.cached import Arrays, cached, is_cached
from bench.reproduction.gallery.keyring import Key
from bench.spec import Spec
from bench.support.progress import progress_lines

CHUNK = 100
"""Images fitted and cached together: interrupted, a long computation loses no more."""


@runtime_checkable
class FittingDefence(Protocol):
    """What the figures ask of the defence `linac` besides the contract of a defence."""

    def fitted(self, images: np.ndarray, key: int) -> Fitted:
        """What the networks fitted to images in [0,1] (N×H×W×3) under a key give."""

    def standardise(self, images: np.ndarray) -> np.ndarray:
        """Images in [0,1] to the units of a fit (N×H×W×3)."""

    def as_images(self, standardised: np.ndarray) -> np.ndarray:
        """Back to [0,1], not cut off (N×H×W×3)."""


class Fitted(Protocol):
    """What fitting N images gave, in standardised units."""

    @property
    def representation(self) -> np.ndarray:
        """N×H×W×channels: what the classifier reads."""

    @property
    def reconstruction(self) -> np.ndarray:
        """N×H×W×3."""

    @property
    def losses(self) -> np.ndarray:
        """N×steps: the error on the mini-batch of each step, before the step."""


@dataclasses.dataclass(frozen=True)
class Fits:
    """The fits of N images."""

    representation: np.ndarray  # N×H×W×channels: what the classifier reads
    reconstruction: np.ndarray  # N×H×W×3 in [0,1], not cut off
    errors: np.ndarray  # N: on the whole image, as in `Errors`


@dataclasses.dataclass(frozen=True)
class Errors:
    """How well N images were fitted: the error summed over channels, averaged over pixels, in standardised units."""

    curves: np.ndarray  # N×steps: on the mini-batch of each step, before the step
    final: np.ndarray  # N: on the whole image, after the last step


def defence(spec: Spec) -> Defence:
    """LINAC with the preset's settings."""
    return registry.defence("linac", spec.defences.get("linac", {}))


def fit(spec: Spec, images: Split, key: Key) -> Fits:
    """The fits of a few images: all of what they gave is cached."""
    chosen = defence(spec)
    fitting = _fitting(chosen)

    def compute() -> Arrays:
        found = fitting.fitted(images.unit(), key.value)
        return {
            "representation": found.representation,
            "reconstruction": found.reconstruction,
            "losses": found.losses,
        }

    arrays = cached(_description("fits", chosen, images, key), compute)
    reconstruction = arrays["reconstruction"]
    return Fits(
        arrays["representation"],
        fitting.as_images(reconstruction),
        _squared_errors(fitting.standardise(images.unit()), reconstruction),
    )


def errors(spec: Spec, images: Split, key: Key, say: Callable[[str], None]) -> Errors:
    """The errors of many images."""
    chosen = defence(spec)
    fitting = _fitting(chosen)
    parts = [
        Split(images.images[start : start + CHUNK], images.labels[start : start + CHUNK])
        for start in range(0, len(images), CHUNK)
    ]
    descriptions = [_description("errors", chosen, part, key) for part in parts]
    to_do = sum(len(part) for part, one in zip(parts, descriptions, strict=True) if not is_cached(one))
    with progress_lines(say)(f"fitting LINAC to {to_do:,} images", to_do) as progress:

        def compute(part: Split) -> Arrays:
            fitted = fitting.fitted(part.unit(), key.value)
            progress.advance(len(part))
            final = _squared_errors(fitting.standardise(part.unit()), fitted.reconstruction)
            return {"curves": fitted.losses, "final": final}

        found = [cached(one, functools.partial(compute, part)) for part, one in zip(parts, descriptions, strict=True)]
    return Errors(np.concatenate([f["curves"] for f in found]), np.concatenate([f["final"] for f in found]))


def _squared_errors(wanted: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Of images (N×H×W×3): the squared difference, summed over channels and averaged over pixels (N)."""
    return np.asarray(np.square(wanted - got).sum(axis=3).mean(axis=(1, 2)))


def _fitting(chosen: Defence) -> FittingDefence:
    assert isinstance(chosen, FittingDefence)
    return chosen


def _description(what: str, chosen: Defence, images: Split, key: Key) -> dict[str, Any]:
    return {"what": what, "defence": described("linac", chosen), "key": key.name, "images": images.fingerprint}
