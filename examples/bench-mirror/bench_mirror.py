"""A complete third-party defence: a keyed choice of rows and columns of the image to mirror."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bench.api import Defence, UsageError


@dataclass(frozen=True)
class MirrorSettings:
    share: float = 0.5  # of the rows that are mirrored

    def __post_init__(self):
        if not 0 <= self.share <= 1:
            raise UsageError(f"mirror: share is {self.share}; it must be between 0 and 1")


class Mirror(Defence):
    """Mirrors a keyed choice of the image's rows from left to right."""

    Settings = MirrorSettings
    keyed = True

    def transform(self, images, key, state):
        height = images.shape[1]
        random = np.random.RandomState([key % 2**64 >> 32, key % 2**32])
        chosen = np.zeros((height, 1, 1), bool)
        chosen[random.permutation(height)[: round(self.settings.share * height)]] = True
        return 2 * tf.where(chosen, images[:, :, ::-1], images) - 1
