"""The undefended classifier, so that every other row has something to be compared with."""

from __future__ import annotations

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from bench.api import Defence, Shape
from defences.colour import standardise


class Undefended(Defence):
    """No defence: the classifier reads the image itself."""

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        return standardise(images)

    def bypass(self, shape: Shape) -> keras.Model:
        return keras.Sequential([keras.Input(shape), keras.layers.Lambda(standardise)])
