"""Transformed training images, computed once and kept while a classifier learns from them.

For a transform that costs more than the network. A copy is an .npy file (N×H'×W'×C), read through the file system's
cache, with the number of finished images beside it: interrupted, it is taken up from there. Its numbers are of half
precision, or bytes: then `range.npz` says what a byte means in each channel, by the first images of the first copy.
What a private key made of the training images is nobody else's business: the folder is its owner's alone, and gone
when the classifier is trained.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from bench import registry
from bench.api import Defence
from bench.data.datasets import Split
from bench.models.augmentation import augmented
from bench.models.recipe import Recipe
from bench.models.weights import read_arrays
from bench.support.cache import home
from bench.support.files import atomic_write
from bench.support.fingerprint import fingerprint
from bench.support.progress import Track

if TYPE_CHECKING:
    from bench.models.catalogue import ClassifierSpec

Both = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
CHUNK = 250
ROOM = 1.25  # how much larger a channel's range is than what the first images have of it
SMALLEST_STEP = 1e-12


class TransformedCopies:
    """The transformed copies of the training images that a classifier's recipe asks for.

    `both` gives of images in [0,1] (B×H×W×3) what `transform` gives and, of the same computation, what the variant of the
    defence that reconstructs the image does: its copies are then kept beside these, for the classifier that wants them.
    """

    def __init__(
        self, spec: ClassifierSpec, transform: Callable[[tf.Tensor], tf.Tensor], data: Split, both: Both | None = None
    ) -> None:
        self._transform, self._data, self._copies, self._both = transform, data, spec.recipe.copies, both
        self._own = _Kept(spec, spec.defence)
        self._kept = [self._own]
        if both is not None:
            settings = spec.defence.reconstruction()
            assert settings is not None
            self._kept.append(_Kept(spec, registry.defence(spec.defence_name, settings)))

    def all(self, track: Track) -> list[np.ndarray]:
        """One array per copy (N×H'×W'×C), computed now if it is not there yet."""
        return [self._copy(number, track) for number in range(self._copies)]

    def decode(self, values: tf.Tensor) -> tf.Tensor:
        """What the classifier reads (B×H'×W'×C, float32) of what is kept."""
        return self._own.decode(values)

    def remove(self) -> None:
        """Removes the classifier's own copies; those of another that were kept beside them stay until it is trained."""
        self._own.remove()

    def _copy(self, number: int, track: Track) -> np.ndarray:
        count = len(self._data)
        done = self._own.done(number)
        kept = [one for one in self._kept if one is self._own or one.done(number) < count]
        if any(one.done(number) != done for one in kept):
            kept = [self._own]  # begun at another time: it is transformed when it is wanted
        copies = [one.opened(number, count) for one in kept]
        compiled = tf.function(self._transform, reduce_retracing=True)
        with track(f"transforming the training images, copy {number + 1} of {self._copies}", count) as progress:
            progress.skip(done)
            for start in range(done, count, CHUNK):
                images = _version(number, self._data.images[start : start + CHUNK], start)
                transformed: tuple[np.ndarray, ...]
                if self._both is not None and len(kept) > 1:
                    transformed = self._both(images)
                else:
                    transformed = (compiled(tf.constant(images)).numpy(),)
                stop = min(start + CHUNK, count)
                for one, copy, values in zip(kept, copies, transformed, strict=True):
                    copy[start:stop] = one.encoded(values)
                    if (start // CHUNK) % 20 == 19 or stop == count:
                        one.flush(number, copy, stop)
                progress.reach(stop)
        return self._own.read(number)


class _Kept:
    """The copies of a defence's transform on disk."""

    def __init__(self, spec: ClassifierSpec, defence: Defence) -> None:
        described = dataclasses.replace(spec, defence=defence).as_json()
        identity = {name: described[name] for name in ("training_images", "defence", "key")}
        if spec.recipe.images:
            identity["images"] = spec.recipe.images
        if spec.recipe.copy_bits != 16:
            identity["bits"] = spec.recipe.copy_bits
        self._folder = home() / "transforms" / fingerprint(identity)[:16]
        self._shape, self._bytes = defence.output_shape(spec.dataset.shape), spec.recipe.copy_bits == 8

    def done(self, number: int) -> int:
        """How many images of a copy are there."""
        path, mark = self._paths(number)
        return int(mark.read_text()) if mark.exists() and path.exists() else 0

    def opened(self, number: int, count: int) -> np.memmap:
        """A copy of so many images, to be written to."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode, shape = ("r+", None) if self.done(number) else ("w+", (count, *self._shape))
        dtype = np.uint8 if self._bytes else np.float16
        return np.lib.format.open_memmap(self._paths(number)[0], mode, dtype, shape)

    def flush(self, number: int, copy: np.memmap, stop: int) -> None:
        """Writes down that a copy has so many images."""
        copy.flush()
        with atomic_write(self._paths(number)[1]) as stream:
            stream.write(str(stop).encode())

    def read(self, number: int) -> np.ndarray:
        return np.asarray(np.load(self._paths(number)[0], mmap_mode="r"))

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def encoded(self, transformed: np.ndarray) -> np.ndarray:
        """What is kept of transformed images (B×H'×W'×C)."""
        if not self._bytes:
            return transformed.astype(np.float16)
        if not self._range_path.exists():
            self._keep_range(transformed)
        lowest, step = self._range()
        return np.clip(np.rint((transformed - lowest) / step), 0, 255).astype(np.uint8)

    def decode(self, values: tf.Tensor) -> tf.Tensor:
        numbers = tf.cast(values, tf.float32)
        if not self._bytes:
            return numbers
        lowest, step = self._range()
        return numbers * step + lowest

    def _paths(self, number: int) -> tuple[Path, Path]:
        """Of a copy, and of the number of its finished images."""
        return self._folder / f"copy-{number}.npy", self._folder / f"copy-{number}.done"

    @property
    def _range_path(self) -> Path:
        return self._folder / "range.npz"

    def _keep_range(self, transformed: np.ndarray) -> None:
        """The range of each channel in these images (B×H'×W'×C), 0 in it, and some room for others."""
        lowest, highest = (
            ROOM * transformed.min(axis=(0, 1, 2), initial=0),
            ROOM * transformed.max(axis=(0, 1, 2), initial=0),
        )
        step = np.maximum((highest - lowest) / 255, SMALLEST_STEP)
        with atomic_write(self._range_path) as stream:
            np.savez(stream, lowest=lowest.astype(np.float32), step=step.astype(np.float32))

    def _range(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest number of each channel (C), and how much one more is."""
        arrays = read_arrays(self._range_path)
        return arrays["lowest"], arrays["step"]


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
