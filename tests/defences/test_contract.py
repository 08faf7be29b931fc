"""What every registered defence keeps to, and what each of ours computes."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from bench import registry
from bench.api import Defence, UsageError
from bench.data import datasets
from bench.support import devices
from bench.testing import check_defence
from defences.block_shuffle import BlockShuffle, BlockShuffleSettings, generator
from defences.colour import MEAN, STD
from defences.jpeg import compress
from defences.pca import PcaBlock, PcaBlockSettings, PcaFull, PcaFullSettings

devices.configure()
IMAGES = datasets.load("cifar10").test.first(40).unit()
KEY = 5
NAMES = [
    name
    for name in registry.entries("defences")
    if registry.entries("defences")[name].package == "bench-keyed-defences"
]
SMALL: dict[str, dict[str, float]] = {
    "linac": {
        "width": 16,
        "layers": 2,
        "representation_layer": 1,
        "epochs": 1,
        "batch_pixels": 16,
        "learning_rate": 0.01,
    },
    "pca-full": {"components": 30},
    "pca-block": {"components": 20},
}


def transformed(defence: Defence, state: dict[str, np.ndarray], images: np.ndarray, key: int = KEY) -> np.ndarray:
    return defence.transform(tf.constant(images), key if defence.keyed else None, state).numpy()


@pytest.mark.parametrize("name", NAMES)
def test_every_defence_keeps_the_contract(name: str) -> None:
    """LINAC on small images, where float32 still resolves its gradient; test_linac.py has it in double precision."""
    small = name == "linac"
    check_defence(
        registry.defence(name, SMALL.get(name, {})),
        shape=(8, 8, 3) if small else (32, 32, 3),
        images=IMAGES[:, :8, :8] if small else IMAGES,
    )


@pytest.mark.parametrize("mode", ["values", "negative", "ffx"])
def test_block_shuffle_keeps_it_in_every_mode(mode: str) -> None:
    check_defence(BlockShuffle(BlockShuffleSettings(mode=mode)), shape=(8, 8, 3))


def raw(out: np.ndarray) -> np.ndarray:
    """What was standardised, in [0,1] again."""
    return out * np.array(STD) + np.array(MEAN)


@pytest.mark.parametrize("mode", ["positions", "values", "negative", "ffx"])
def test_block_shuffle_does_the_same_inside_every_block(mode: str) -> None:
    defence = BlockShuffle(BlockShuffleSettings(mode=mode))
    values = IMAGES[:3]
    out = raw(transformed(defence, {}, values))

    def blocks(images: np.ndarray) -> np.ndarray:
        return images.reshape(3, 8, 4, 8, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 48)

    before, after = blocks(values), blocks(out)
    if mode in ("positions", "values"):
        assert np.allclose(np.sort(before, axis=1), np.sort(after, axis=1), atol=1e-6)
        # The one permutation that explains the first block explains all of them.
        order = [int(np.abs(before - after[:, [i]]).sum(axis=0).argmin()) for i in range(48)]
        assert sorted(order) == list(range(48))
        assert np.allclose(before[:, order], after, atol=1e-6)
        together = [order[i + 1] == order[i] + 1 == order[i + 2] - 1 for i in range(0, 48, 3)]
        assert all(together) == (mode == "positions"), "positions keep a pixel's colours together, values do not"
    elif mode == "negative":
        flipped = np.isclose(after, 1 - before, atol=1e-6).all(axis=0)
        assert flipped.sum() == 24
        assert np.allclose(after[:, ~flipped], before[:, ~flipped], atol=1e-6)
    else:
        same = np.isclose(after, before, atol=1e-6).all(axis=0)
        assert same.sum() == 24
        table: dict[int, int] = {}
        for x, y in zip(before[:, ~same].ravel(), after[:, ~same].ravel(), strict=True):
            assert table.setdefault(round(x * 255), round(y * 255)) == round(y * 255), (
                "one substitution of the byte values"
            )
        assert len(set(table.values())) == len(table)


def test_block_shuffle_needs_whole_blocks() -> None:
    with pytest.raises(UsageError, match="do not divide into blocks of 5"):
        transformed(BlockShuffle(BlockShuffleSettings(block=5)), {}, IMAGES[:1])


def test_the_bypass_of_block_shuffle_can_be_the_transform() -> None:
    defence = BlockShuffle()
    bypass = defence.bypass((32, 32, 3))
    (kernel,) = bypass.trainable_variables
    assert kernel.shape == (16, 16)
    assert np.allclose(raw(bypass(IMAGES[:2]).numpy()), IMAGES[:2], atol=1e-6), "it starts at the identity"
    wanted = defence.transform(tf.constant(IMAGES[:2]), 5, {}).numpy()
    order = generator(5).permutation(16)
    kernel.assign(np.eye(16, dtype=np.float32)[:, order])
    assert np.allclose(bypass(IMAGES[:2]).numpy(), wanted, atol=1e-5), "and can become the shuffle"
    assert BlockShuffle(BlockShuffleSettings(mode="values")).bypass((32, 32, 3)).trainable_variables[0].shape == (
        48,
        48,
    )


@pytest.mark.parametrize("quality", [10, 23, 90])
@pytest.mark.parametrize("chroma", [True, False])
def test_jpeg_is_what_another_decoder_reads(quality: int, chroma: bool) -> None:
    """Against Pillow's encoder and decoder, which share libjpeg's tables but not TensorFlow's code."""
    ours = compress(tf.constant(IMAGES[:8]), quality, chroma).numpy() * 255
    for i in range(8):
        stream = io.BytesIO()
        image = Image.fromarray(np.round(IMAGES[i] * 255).astype(np.uint8))
        image.save(stream, "JPEG", quality=quality, subsampling=2 if chroma else 0)
        theirs = np.asarray(Image.open(stream), np.float32)
        assert np.abs(ours[i] - theirs).mean() < 1.0
        assert np.abs(ours[i] - IMAGES[i] * 255).mean() > np.abs(ours[i] - theirs).mean()


def test_jpeg_backward_is_the_identity() -> None:
    defence = registry.defence("jpeg-10", {})
    x = tf.constant(IMAGES[:2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(defence.transform(x, None, {}) * 3)
    assert np.allclose(tape.gradient(loss, x), 3 / np.array(STD), atol=1e-4)


def test_pca_is_the_nearest_point_of_the_principal_subspace() -> None:
    full = PcaFull(PcaFullSettings(components=20))
    state = full.fit(IMAGES)
    rows = IMAGES.reshape(40, -1).astype(np.float64)
    _, _, directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    expected = rows.mean(axis=0) + (rows - rows.mean(axis=0)) @ directions[:20].T @ directions[:20]
    assert np.allclose(raw(transformed(full, state, IMAGES)).reshape(40, -1), expected, atol=1e-4)


def test_pca_of_blocks_keeps_everything_with_all_components() -> None:
    block = PcaBlock(PcaBlockSettings(components=192))
    state = block.fit(IMAGES)
    assert np.allclose(raw(transformed(block, state, IMAGES)), IMAGES, atol=1e-4)
    fewer = PcaBlock(PcaBlockSettings(components=5))
    first = raw(transformed(fewer, {**state, "components": state["components"][:5]}, IMAGES))
    errors = [np.square(first - IMAGES).sum(), np.square(IMAGES - IMAGES.mean()).sum()]
    assert errors[0] < errors[1]
    with pytest.raises(UsageError, match="components is 193"):
        PcaBlockSettings(components=193)
