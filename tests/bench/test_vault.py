"""The process that has the key: it judges as one would here, says no key, and fails in one line."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench import keys, registry
from bench.api import BenchError, UsageError
from bench.data import datasets
from bench.keys import KeyPlace, PrivateKey
from bench.models import artifacts, catalogue
from bench.spec import Spec, resolve
from bench.vault.base import Defended
from bench.vault.here import VaultHere
from bench.vault.process import VaultProcess, opened
from bench.vault.referee import RefusedImages
from tests import packages, tiny
from tests.processes import bench

pytestmark = pytest.mark.needs_process

SECRET = -7346182930471265583


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are bound to keys in a folder of the test's own."""
    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def vault() -> Iterator[VaultProcess]:
    found = opened(KeyPlace.of(PrivateKey("mine", SECRET)))
    assert isinstance(found, VaultProcess)
    with found:
        yield found


def shipped() -> tuple[Spec, Defended]:
    """Block Pixel Shuffle with the classifier of the zoo; under another key than its own, it computes all the same."""
    spec = resolve("laptop")
    name, defence = spec.defence("block-shuffle")
    dataset = datasets.load(spec.dataset)
    described = catalogue.spec_for(spec, dataset, name, defence, keys.PUBLISHED_ID)
    artifact = artifacts.find(described.fingerprint)
    assert artifact is not None
    settings = dataclasses.asdict(registry.defence(name, {}).settings)
    return spec, Defended(
        name, settings, True, described.recipe.network, artifact.weights, artifact.weights_sha256, dataset.shape, 10
    )  # fmt: skip


def test_it_judges_as_the_same_key_does_here(vault: VaultProcess) -> None:
    spec, defended = shipped()
    examples = datasets.load(spec.dataset).examples(6)
    images, labels = examples.images.astype(np.float32) / 255, examples.labels
    moved = np.clip(images + np.float32(4 / 255), 0, 1)
    there = vault.referee(defended).judge(images, labels, moved, "linf", 8 / 255)
    here = VaultHere(PrivateKey("mine", SECRET)).referee(defended).judge(images, labels, moved, "linf", 8 / 255)
    np.testing.assert_array_equal(there.pred, here.pred)
    np.testing.assert_array_equal(there.correct, here.correct)
    np.testing.assert_allclose(there.margin, here.margin, atol=1e-4)
    np.testing.assert_array_equal(there.distance, here.distance)
    assert there.rounded is None
    faint = np.clip(images + np.float32(1.4 / 255), 0, 1)
    nearest = np.clip(images + np.float32(1 / 255), 0, 1)
    rounded = vault.referee(defended).judge(images, labels, faint, "linf", 8 / 255, rounded=True)
    expected = vault.referee(defended).judge(images, labels, nearest, "linf", 8 / 255)
    np.testing.assert_array_equal(rounded.rounded, expected.correct)
    with pytest.raises(RefusedImages):
        vault.referee(defended).judge(images, labels, np.clip(images + np.float32(0.5), 0, 1), "linf", 8 / 255)


def test_it_tells_of_bytes_whether_the_key_is_in_them(vault: VaultProcess) -> None:
    assert vault.holds(b"noise " + str(SECRET).encode() + b" noise")
    assert not vault.holds(b"noise " + str(SECRET + 1).encode() + b" noise")


def test_one_that_dies_is_said_in_one_line(vault: VaultProcess) -> None:
    os.kill(vault.pid, signal.SIGKILL)
    with pytest.raises(
        BenchError, match=r"^the process that has the key died \(exit code -9\): .*the same command goes on"
    ):
        vault.holds(b"anything")


def test_a_name_is_bound_to_its_key(vault: VaultProcess) -> None:
    opened(KeyPlace.of(PrivateKey("mine", SECRET))).close()
    with pytest.raises(UsageError, match="the name 'mine' belongs to another key"):
        opened(KeyPlace.of(PrivateKey("mine", SECRET + 1)))


def test_errors_keep_their_kind(vault: VaultProcess) -> None:
    _, defended = shipped()
    with pytest.raises(UsageError, match=r"gone\.npz"):
        vault.referee(dataclasses.replace(defended, weights=Path("gone.npz")))


LEAKY = '''
"""A defence that fails with the key in its words."""
import numpy as np
import tensorflow as tf
from bench.api import Defence

class Leaky(Defence):
    """Cannot take a key of 64 bits."""

    keyed = True

    def transform(self, images, key, state):
        raise ValueError(f"{key} {key:x} {key & (2**32 - 1)} {np.int64(key)!r} {float(key)} {np.int32(key)}")
'''


def test_an_error_with_the_key_in_its_words_is_told_without_it(tmp_path: Path) -> None:
    tiny.make(tmp_path)
    packages.write(tmp_path / "packages", "leaky-pack", "defences", "leaky", "leaky_module", LEAKY, "Leaky")
    done = bench("run", "--defence", "leaky", "--attack", "pgd@nominal", "--preset", "tiny.toml", "--dataset", "mine.npz",
                 cwd=tmp_path, PYTHONPATH=str(tmp_path / "packages"), BENCH_HOME=str(tmp_path / "home"),
                 BENCH_KEY=f"mine:{SECRET}")  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "***" in done.stderr
    forms = {str(SECRET), str(abs(SECRET)), f"{abs(SECRET):x}", str(SECRET & (2**32 - 1)), repr(float(SECRET))}
    shown = [
        done.stdout,
        done.stderr,
        *(path.read_bytes().decode("latin1") for path in tmp_path.rglob("*") if path.is_file()),
    ]
    assert not [form for form in forms for text in shown if form in text]


NPM = """#!/bin/sh
tr '\\0' '\\n' < /proc/$$/environ > "$SEEN"
exit 1
"""


def test_what_is_started_to_fetch_data_never_has_the_key(tmp_path: Path) -> None:
    (tmp_path / "npm").write_text(NPM)
    (tmp_path / "npm").chmod(0o755)
    seen = tmp_path / "seen.txt"
    done = bench("data", "fetch", cwd=tmp_path, BENCH_HOME=str(tmp_path / "home"), BENCH_KEY=f"mine:{SECRET}",
                 PATH=f"{tmp_path}:{os.environ['PATH']}", SEEN=str(seen), KERAS_HOME=str(tmp_path / "keras"),
                 https_proxy="http://127.0.0.1:9")  # fmt: skip
    assert done.returncode == 1
    assert "SEEN=" in seen.read_text(), "npm was asked, and looked at its environment"
    assert "BENCH_KEY" not in seen.read_text()
    assert str(SECRET) not in seen.read_text()
