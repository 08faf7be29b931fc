"""LINAC's fits as the figures need them: by the preset's settings, under keys that are no secret, kept once computed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import registry
from bench.data.datasets import Split
from bench.models.catalogue import described
from bench.reproduction.gallery.kept import Arrays, is_kept, kept
from bench.reproduction.gallery.keyring import Key
from bench.spec import Spec
from bench.support.progress import progress_lines
from defences import colour, linac

CHUNK = 100
"""Images fitted and kept together: interrupted, a long computation loses no more."""


@dataclasses.dataclass(frozen=True)
class Errors:
    """How well N images were fitted: the error summed over channels, averaged over pixels, in standardised units."""

    curves: np.ndarray  # N×steps: on the mini-batch of each step, before the step
    final: np.ndarray  # N: on the whole image, after the last step


def defence(spec: Spec) -> linac.Linac:
    """LINAC with the preset's settings."""
    created = registry.defence("linac", spec.defences.get("linac", {}))
    assert isinstance(created, linac.Linac)
    return created


def fit(spec: Spec, images: Split, key: Key) -> linac.Fit:
    """The fits of a few images: all of what they gave is kept."""
    chosen = defence(spec)

    def compute() -> Arrays:
        return dataclasses.asdict(linac.fit(linac.standardise(images.unit()), key.value, chosen.settings))

    return linac.Fit(**kept(_described("fits", chosen, images, key), compute))


def errors(spec: Spec, images: Split, key: Key, say: Callable[[str], None]) -> Errors:
    """The errors of many images."""
    chosen = defence(spec)
    parts = [
        Split(images.images[start : start + CHUNK], images.labels[start : start + CHUNK])
        for start in range(0, len(images), CHUNK)
    ]
    names = [_described("errors", chosen, part, key) for part in parts]
    to_do = sum(len(part) for part, name in zip(parts, names, strict=True) if not is_kept(name))
    with progress_lines(say)(f"fitting LINAC to {to_do:,} images", to_do) as progress:

        def compute(part: Split) -> Arrays:
            wanted = linac.standardise(part.unit())
            fitted = linac.fit(wanted, key.value, chosen.settings)
            progress.advance(len(part))
            return {"curves": fitted.losses, "final": squared_error(wanted, fitted.reconstruction)}

        found = [kept(name, functools.partial(compute, part)) for part, name in zip(parts, names, strict=True)]
    return Errors(np.concatenate([f["curves"] for f in found]), np.concatenate([f["final"] for f in found]))


def squared_error(wanted: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Of images (N×H×W×3): the squared difference, summed over channels and averaged over pixels (N)."""
    return np.square(wanted - got).sum(axis=3).mean(axis=(1, 2))


def as_images(standardised: np.ndarray) -> np.ndarray:
    """Back from what is fitted to images in [0,1], not cut off (N×H×W×3)."""
    return standardised * np.array(colour.STD, np.float32) + np.array(colour.MEAN, np.float32)


def _described(what: str, chosen: linac.Linac, images: Split, key: Key) -> dict[str, Any]:
    return {"what": what, "defence": described("linac", chosen), "key": key.name, "images": images.fingerprint}
