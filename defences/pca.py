"""Projection on the principal components of the training images (Shaham et al.), of whole images or of 8×8 blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bench.api import Defence, UsageError
from defences.colour import standardise


@dataclasses.dataclass(frozen=True)
class PcaFullSettings:
    components: int = 800

    def __post_init__(self) -> None:
        if self.components < 1:
            raise UsageError(f"pca-full: components is {self.components}; it must be at least 1")


@dataclasses.dataclass(frozen=True)
class PcaBlockSettings:
    components: int = 64
    block: int = 8

    def __post_init__(self) -> None:
        if self.block < 1:
            raise UsageError(f"pca-block: block is {self.block}; it must be at least 1")
        if not 1 <= self.components <= self.block**2 * 3:
            raise UsageError(f"pca-block: components is {self.components}; it must be 1 to {self.block**2 * 3}")


def principal_components(rows: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """The mean (D) of N×D rows and their first `count` principal directions (count×D), float32."""
    if count > min(rows.shape):
        raise UsageError(f"pca: {count} components asked for, but {rows.shape} values have only {min(rows.shape)}")
    mean = rows.mean(axis=0, dtype=np.float64)
    if len(rows) < rows.shape[1]:
        directions = np.linalg.svd(rows - mean, full_matrices=False)[2]
    else:
        covariance = np.zeros((rows.shape[1], rows.shape[1]))
        for start in range(0, len(rows), 10_000):  # by slices: a float64 copy of all rows would not fit in memory
            centred = rows[start : start + 10_000] - mean
            covariance += centred.T @ centred
        directions = np.linalg.eigh(covariance)[1].T[::-1]
    return {"mean": mean.astype(np.float32), "components": directions[:count].astype(np.float32)}


def project(rows: tf.Tensor, state: Mapping[str, np.ndarray]) -> tf.Tensor:
    """...×D to the nearest point of the principal subspace, ...×D."""
    mean, components = (tf.constant(state[name], tf.float32) for name in ("mean", "components"))
    return mean + tf.linalg.matmul(tf.linalg.matmul(rows - mean, components, transpose_b=True), components)


class PcaFull(Defence):
    """Projection of the whole image on its first principal components."""

    Settings = PcaFullSettings
    settings: PcaFullSettings

    def fit(self, images: np.ndarray) -> dict[str, np.ndarray]:
        return principal_components(images.reshape(len(images), -1), self.settings.components)

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        flat = tf.reshape(images, (-1, np.prod(images.shape[1:])))
        return standardise(tf.reshape(project(flat, state), tf.shape(images)))


class PcaBlock(Defence):
    """Projection of every 8×8 block on the first principal components of such blocks."""

    Settings = PcaBlockSettings
    settings: PcaBlockSettings

    def fit(self, images: np.ndarray) -> dict[str, np.ndarray]:
        block = self.settings.block
        count, height, width, channels = images.shape
        grid = images.reshape(count, height // block, block, width // block, block, channels).swapaxes(2, 3)
        return principal_components(grid.reshape(-1, block * block * channels), self.settings.components)

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        block = self.settings.block
        if images.shape[1] % block or images.shape[2] % block:
            raise UsageError(
                f"pca-block: images of {images.shape[1]}×{images.shape[2]} do not divide into blocks of {block}"
            )
        return standardise(tf.nn.depth_to_space(project(tf.nn.space_to_depth(images, block), state), block))
