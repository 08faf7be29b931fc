"""JPEG compression before the classifier (Das et al.; Guo et al.), attacked by BPDA with the identity backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bench.api import Defence, UsageError
from defences import smooth_jpeg
from defences.colour import standardise, straight_through


@dataclasses.dataclass(frozen=True)
class JpegSettings:
    quality: int = 23
    chroma_downsampling: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.quality <= 100:
            raise UsageError(f"jpeg: quality is {self.quality}; it must be between 1 and 100")


@dataclasses.dataclass(frozen=True)
class Jpeg10Settings(JpegSettings):
    quality: int = 10


def compress(images: tf.Tensor, quality: int, chroma_downsampling: bool) -> tf.Tensor:
    """B×H×W×3 in [0,1] through an encoder and a decoder, back to B×H×W×3 in [0,1]; no gradient."""

    def one(image: tf.Tensor) -> tf.Tensor:
        encoded = tf.io.encode_jpeg(image, quality=quality, chroma_downsampling=chroma_downsampling)
        return tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE")

    bytes_ = tf.cast(tf.round(tf.clip_by_value(images, 0.0, 1.0) * 255), tf.uint8)
    decoded = tf.map_fn(one, bytes_, fn_output_signature=tf.uint8)
    return tf.ensure_shape(tf.cast(decoded, tf.float32) / 255, images.shape)


class Jpeg(Defence):
    """JPEG compression and decompression at a given quality."""

    Settings = JpegSettings
    in_all = False  # its two variants are
    gradient = "bpda"
    settings: JpegSettings

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        compressed = compress(images, self.settings.quality, self.settings.chroma_downsampling)
        return standardise(straight_through(compressed, images))

    def smooth(self, images: tf.Tensor, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        return standardise(smooth_jpeg.compressed(images, self.settings.quality, self.settings.chroma_downsampling))


class Jpeg23(Jpeg):
    """JPEG compression at quality 23."""

    in_all = True


class Jpeg10(Jpeg):
    """JPEG compression at quality 10."""

    Settings = Jpeg10Settings
    in_all = True
