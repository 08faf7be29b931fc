"""The one way from a network and a weights file to a classifier in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.api import Shape
from bench.models.architecture import Architecture
from bench.models.weights import check_digest, put_into, read_arrays
from bench.support.fingerprint import of_file

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A classifier in memory, with the defence's fitted state and the digest of its weights."""

    model: keras.Model
    state: Mapping[str, np.ndarray]
    weights_sha256: str


def load(network: Architecture, shape: Shape, classes: int, weights: Path, sha256: str | None = None) -> Classifier:
    """A network that reads inputs of this shape, with the weights of a file; `sha256` is what they must have."""
    arrays = read_arrays(weights)
    found = of_file(weights)
    if sha256 is not None:
        check_digest(weights, found, sha256)
    model = network.build(shape, classes)
    state = put_into(model, arrays, weights)
    return Classifier(model, state, found)
