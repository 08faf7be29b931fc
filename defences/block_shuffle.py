"""Block Pixel Shuffle (AprilPyone and Kiya), as the paper evaluates it and as its authors define it, and its siblings.

The image is cut into 4×4 blocks and every block goes through the same keyed map:

- `positions`: the 16 pixels change places, their colours stay together (the paper);
- `values`: all 48 numbers change places, so the channels mix (the defence's authors);
- `negative`: a keyed half of the 48 numbers is inverted, x → 1 − x;
- `ffx`: a keyed half of the 48 numbers, as bytes, goes through a keyed substitution.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from bench.api import Defence, Shape, UsageError
from defences.colour import as_images, standardise, straight_through

MODES = ("positions", "values", "negative", "ffx")


@dataclasses.dataclass(frozen=True)
class BlockShuffleSettings:
    mode: str = "positions"
    block: int = 4

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(f"block-shuffle: mode is '{self.mode}'; choose one of {', '.join(MODES)}")
        if not 1 <= self.block <= 64:
            raise UsageError(f"block-shuffle: block is {self.block}; it must be between 1 and 64")


def to_blocks(images: tf.Tensor, block: int) -> tf.Tensor:
    """B×H×W×3 to B×(H/block)×(W/block)×(block²·3): row by row inside the block, the channels of a pixel together."""
    return tf.nn.space_to_depth(images, block)


def from_blocks(blocks: tf.Tensor, block: int) -> tf.Tensor:
    """The inverse of `to_blocks`."""
    return tf.nn.depth_to_space(blocks, block)


def generator(key: int) -> np.random.RandomState:
    """A generator whose stream numpy has promised never to change, from all 64 bits of the key."""
    word = key % 2**64
    return np.random.RandomState([word >> 32, word & 0xFFFFFFFF])


class BlockShuffle(Defence):
    """Block Pixel Shuffle: one keyed permutation inside every 4×4 block."""

    Settings = BlockShuffleSettings
    keyed = True
    settings: BlockShuffleSettings

    def __init__(self, settings: BlockShuffleSettings | None = None) -> None:
        super().__init__(settings)
        if self.settings.mode == "ffx":
            self.gradient = "bpda"  # type: ignore[misc]

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        if key is None:
            raise UsageError("block-shuffle needs a key")
        block = self.settings.block
        if images.shape[1] % block or images.shape[2] % block:
            raise UsageError(
                f"block-shuffle: images of {images.shape[1]}×{images.shape[2]} do not divide into blocks of {block}"
            )
        blocks = to_blocks(images, block)
        return standardise(from_blocks(self._keyed_map(blocks, generator(key)), block))

    def shuffled(self, images: np.ndarray, key: int) -> np.ndarray:
        """What `transform` makes of images (B×H×W×3), back in [0,1]: to look at."""
        return as_images(self.transform(tf.constant(images), key, {}).numpy())

    def _keyed_map(self, blocks: tf.Tensor, random: np.random.RandomState) -> tf.Tensor:
        """B×h×w×(block²·3) to the same shape."""
        values = self.settings.block**2 * 3
        if self.settings.mode == "positions":
            pixels = random.permutation(self.settings.block**2)
            return tf.gather(blocks, (pixels[:, None] * 3 + np.arange(3)).ravel(), axis=-1)
        if self.settings.mode == "values":
            return tf.gather(blocks, random.permutation(values), axis=-1)
        chosen = np.zeros(values, bool)
        chosen[random.permutation(values)[: values // 2]] = True
        if self.settings.mode == "negative":
            return tf.where(chosen, 1 - blocks, blocks)
        table = tf.constant(random.permutation(256).astype(np.float32) / np.float32(255))
        bytes_ = tf.cast(tf.round(tf.clip_by_value(blocks, 0.0, 1.0) * 255), tf.int32)
        return tf.where(chosen, straight_through(tf.gather(table, bytes_), blocks), blocks)

    def bypass(self, shape: Shape) -> keras.Model:
        """One linear map inside the block, without bias, starting at the identity (the paper's PBA for this defence).

        It reads the standardised image: around 0 it is far better conditioned. Where whole pixels are permuted, as an
        attacker knows, it mixes the block's pixels and treats the three channels alike.
        """
        block, whole_pixels = self.settings.block, self.settings.mode == "positions"
        image = keras.Input(shape)

        def cut(images: tf.Tensor) -> tf.Tensor:
            blocks = to_blocks(standardise(images), block)
            if not whole_pixels:
                return blocks
            return tf.linalg.matrix_transpose(tf.reshape(blocks, (-1, *blocks.shape[1:3], block**2, 3)))

        def joined(values: tf.Tensor) -> tf.Tensor:
            if whole_pixels:
                values = tf.reshape(tf.linalg.matrix_transpose(values), (-1, *values.shape[1:3], block**2 * 3))
            return from_blocks(values, block)

        layer = keras.layers.Dense(
            block**2 * (1 if whole_pixels else 3), use_bias=False, kernel_initializer="identity", name="block_map"
        )
        return keras.Model(image, keras.layers.Lambda(joined)(layer(keras.layers.Lambda(cut)(image))))
