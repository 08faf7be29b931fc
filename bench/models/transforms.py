"""Transformed training images, computed once and kept while a classifier learns from them.

For a transform that costs more than the network. A copy is an .npy file of half-precision numbers (N×H'×W'×C), read
through the file system's cache, with the number of finished images beside it: interrupted, it is taken up from there.
What a private key made of the training images is nobody else's business: the folder is its owner's alone, and gone
when the classifier is trained.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from bench.data.datasets import Split
from bench.models.augmentation import augmented
from bench.models.recipe import Recipe
from bench.support.cache import home
from bench.support.files import atomic_write
from bench.support.fingerprint import fingerprint
from bench.support.progress import Track

if TYPE_CHECKING:
    from bench.models.catalogue import ClassifierSpec

CHUNK = 250


class TransformedCopies:
    """The transformed copies of the training images that a classifier's recipe asks for."""

    def __init__(self, spec: ClassifierSpec, transform: Callable[[tf.Tensor], tf.Tensor], data: Split) -> None:
        described = spec.as_json()
        identity = {name: described[name] for name in ("training_images", "defence", "key")}
        if spec.recipe.images:
            identity["images"] = spec.recipe.images
        self._folder = home() / "transforms" / fingerprint(identity)[:16]
        self._transform, self._data, self._copies = transform, data, spec.recipe.copies
        self._shape = spec.defence.output_shape(spec.dataset.shape)

    def all(self, track: Track) -> list[np.ndarray]:
        """One array per copy (N×H'×W'×C), computed now if it is not there yet."""
        return [self._copy(number, track) for number in range(self._copies)]

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _copy(self, number: int, track: Track) -> np.ndarray:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path, mark = self._folder / f"copy-{number}.npy", self._folder / f"copy-{number}.done"
        count = len(self._data)
        done = int(mark.read_text()) if mark.exists() and path.exists() else 0
        copy = np.lib.format.open_memmap(
            path, "r+" if done else "w+", np.float16, None if done else (count, *self._shape)
        )
        compiled = tf.function(self._transform, reduce_retracing=True)
        with track(f"transforming the training images, copy {number + 1} of {self._copies}", count) as progress:
            progress.skip(done)
            for start in range(done, count, CHUNK):
                images = _version(number, self._data.images[start : start + CHUNK], start)
                copy[start : start + CHUNK] = compiled(tf.constant(images)).numpy()
                stop = min(start + CHUNK, count)
                if (start // CHUNK) % 20 == 19 or stop == count:
                    copy.flush()
                    with atomic_write(mark) as stream:
                        stream.write(str(stop).encode())
                progress.reach(stop)
        return np.load(path, mmap_mode="r")


def _version(number: int, images: np.ndarray, start: int) -> np.ndarray:
    """The images as they are, mirrored, or cropped and flipped at random by (number, start): B×H×W×3 in [0,1]."""
    images = images.astype(np.float32) / np.float32(255)
    if number == 0:
        return images
    if number == 1:
        return np.ascontiguousarray(images[:, :, ::-1])
    crops = Recipe(cutmix=False)
    return augmented(tf.constant(images), tf.zeros(len(images), tf.int32), crops, 1, tf.constant([number, start]))[
        0
    ].numpy()
