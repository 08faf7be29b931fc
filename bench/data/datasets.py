"""Images to train on and to attack: CIFAR-10 (a sample of it ships with the package), or any .npz of one's own."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.api import Shape, UsageError
from bench.support.cache import home
from bench.support.files import atomic_write
from bench.support.fingerprint import fingerprint

MOST_CLASSES = 2**20
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# sha256 of the raw bytes of each array (uint8), in the order of the original files.
CIFAR10_DIGESTS = {
    "x_train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    "x_test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
}
KEPT = "images"
"""How the names of datasets begin that `keep_images` has kept."""
ROUNDING = 1e-3  # of a float that stands for n/255: even half precision rounds less
_EMBEDDED = Path(__file__).parent / "embedded" / "cifar10_test_500.npz"


@dataclasses.dataclass(frozen=True)
class Split:
    """Images (N×H×W×3, uint8) and their labels (N, int32)."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def first(self, count: int) -> Split:
        return Split(self.images[:count], self.labels[:count])

    def unit(self) -> np.ndarray:
        """The images as float32 in [0,1]."""
        return self.images.astype(np.float32) / np.float32(255)

    @functools.cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.images).tobytes())
        digest.update(np.ascontiguousarray(self.labels, dtype=np.int32).tobytes())
        return digest.hexdigest()

    def digests(self, size: int) -> bytes:
        """So many bytes per example, of its image and label, in their order: those of a part are a part of these."""
        shape = np.array(self.images.shape[1:], np.int32).tobytes()
        found = []
        for image, label in zip(self.images, self.labels, strict=True):
            content = shape + np.ascontiguousarray(image).tobytes() + np.int32(label).tobytes()
            found.append(hashlib.sha256(content).digest()[:size])
        return b"".join(found)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Test images to attack, the names of the classes, and where the training images are."""

    name: str
    test: Split
    classes: tuple[str, ...]
    path: Path | None
    training_fingerprint: str | None

    @property
    def shape(self) -> Shape:
        height, width, channels = self.test.images.shape[1:]
        return (height, width, channels)

    def examples(self, count: int) -> Split:
        """The first `count` test examples, which are what a board is made of."""
        if count > len(self.test):
            hint = " ('bench data fetch' brings all 10,000)" if self.path is None else ""
            raise UsageError(f"{count} examples asked for, but {self.name} has {len(self.test)} test images here{hint}")
        return self.test.first(count)

    @property
    def _where(self) -> str:
        kept = self.name.startswith(f"{KEPT}-")
        return "images that were given as arrays have no others" if kept else f"{self.path} has no x_train and y_train"

    def training(self) -> Split:
        """The training images, read on use."""
        if self.path is None:
            raise UsageError(f"training needs {self.name}'s training images: run 'bench data fetch' first")
        with np.load(self.path, allow_pickle=False) as arrays:
            if "x_train" not in arrays:
                raise UsageError(
                    f"{self._where} to train on: give a dataset, the path of an .npz with x_train and y_train too"
                )
            return Split(arrays["x_train"], arrays["y_train"].astype(np.int32))


def cifar10_path() -> Path:
    return home() / "data" / "cifar10.npz"


def load(name: str) -> Dataset:
    """`cifar10` (all of it if fetched, else the sample inside the package), the path of an .npz file, or a name that
    `keep_images` gave."""
    if name == "cifar10":
        path = cifar10_path() if cifar10_path().exists() else None
        with np.load(path or _EMBEDDED, allow_pickle=False) as arrays:
            test = Split(arrays["x_test"], arrays["y_test"].astype(np.int32))
        return Dataset("cifar10", test, CIFAR10_CLASSES, path, CIFAR10_DIGESTS["x_train"])
    if re.fullmatch(f"{KEPT}-[0-9a-f]{{16}}", name):
        return _from_npz(home() / "data" / f"{name}.npz")
    if not name.endswith(".npz"):
        raise UsageError(f"unknown dataset '{name}': use cifar10, or the path of an .npz file with images and labels")
    return _from_npz(Path(name))


def _from_npz(path: Path) -> Dataset:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except FileNotFoundError:
        raise UsageError(f"dataset {path} does not exist") from None
    except Exception as error:
        raise UsageError(f"{path} is not an .npz of arrays: {error}") from error
    images, labels = arrays.get("x_test", arrays.get("images")), arrays.get("y_test", arrays.get("labels"))
    if images is None or labels is None:
        raise UsageError(f"{path} holds {sorted(arrays)}: it needs images and labels (or x_test and y_test)")
    training = None
    if "x_train" in arrays or "y_train" in arrays:
        if "x_train" not in arrays or "y_train" not in arrays:
            raise UsageError(f"{path} has one of x_train and y_train: give both or none")
        training = _checked(path, "x_train", arrays["x_train"], "y_train", arrays["y_train"])
        if training.images.shape[1:] != images.shape[1:]:
            raise UsageError(f"{path}: training images are {training.images.shape[1:]}, test images {images.shape[1:]}")
    test = _checked(path, "images", images, "labels", labels)
    count = int(max(test.labels.max(), training.labels.max() if training else 0)) + 1
    names = tuple(str(n) for n in arrays["classes"]) if "classes" in arrays else tuple(map(str, range(count)))
    if count > len(names):
        raise UsageError(f"{path}: label {count - 1} is outside its {len(names)} classes")
    return Dataset(path.stem, test, names, path, training.fingerprint if training else None)


def _checked(path: Path, images_name: str, images: np.ndarray, labels_name: str, labels: np.ndarray) -> Split:
    if images.ndim != 4 or images.shape[3] != 3 or min(images.shape) < 1:
        raise UsageError(f"{path}: {images_name} has shape {images.shape}; it must be N×H×W×3")
    if images.dtype.kind == "f" and not np.isfinite(images).all():
        raise UsageError(f"{path}: {images_name} has NaN or infinite values; give uint8 images")
    if images.dtype != np.uint8:
        raise UsageError(f"{path}: {images_name} is {images.dtype}; it must be uint8, 0 to 255")
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        raise UsageError(
            f"{path}: {labels_name} is {labels.dtype} of shape {labels.shape}; "
            f"it must be {len(images)} integers, one an image"
        )
    if labels.min() < 0 or labels.max() >= MOST_CLASSES:
        odd = labels.min() if labels.min() < 0 else labels.max()
        raise UsageError(f"{path}: {labels_name} has {odd}; labels are 0 and up, below {MOST_CLASSES}")
    return Split(images, labels.astype(np.int32))


def keep_images(images: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> str:
    """Keeps images (N×H×W×3, uint8) with their labels in the cache folder, by their digest; returns the dataset's name."""
    split = _checked(Path("images"), "images", images, "labels", labels)
    if int(split.labels.max()) >= len(classes):
        raise UsageError(f"labels has {split.labels.max()}, which is outside the {len(classes)} classes")
    name = f"{KEPT}-{fingerprint([split.fingerprint, list(images.shape), list(classes)])[:16]}"
    path = home() / "data" / f"{name}.npz"
    if not path.exists():
        with atomic_write(path) as stream:
            np.savez_compressed(stream, images=split.images, labels=split.labels, classes=np.array(classes))
    return name


def as_bytes(images: np.ndarray) -> np.ndarray:
    """Images as uint8: as they are, or from floats in [0,1] that are multiples of 1/255; others are refused."""
    images = np.asarray(images)
    if images.dtype.kind != "f":
        return images  # whether it is uint8 is checked with everything else
    scaled = np.rint(images.astype(np.float64) * 255) if np.isfinite(images).all() else np.full(images.shape, -1.0)
    if images.size and (scaled.min() < 0 or scaled.max() > 255 or np.abs(scaled / 255 - images).max() > ROUNDING):
        raise UsageError(
            "images has values that no 8-bit image has: give uint8, 0 to 255, or floats in [0,1] that are multiples of 1/255"
        )
    return scaled.astype(np.uint8)


def keep_cifar10(arrays: dict[str, np.ndarray]) -> Path:
    """Checks all four arrays by digest, and keeps them in the cache folder."""
    for name, digest in CIFAR10_DIGESTS.items():
        found = hashlib.sha256(np.ascontiguousarray(arrays[name], dtype=np.uint8).tobytes()).hexdigest()
        if found != digest:
            raise UsageError(f"these are not CIFAR-10's arrays: {name} has sha256 {found[:12]}…, not {digest[:12]}…")
    with atomic_write(cifar10_path()) as stream:
        np.savez(stream, **{name: arrays[name].astype(np.uint8) for name in CIFAR10_DIGESTS})  # type: ignore[arg-type]
    return cifar10_path()
