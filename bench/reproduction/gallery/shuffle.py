"""Figure 5: what Block Pixel Shuffle does to an image."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd
from markupsafe import Markup

from bench import registry
from bench.api import UsageError
from bench.data import datasets
from bench.reproduction.gallery.keyring import Key, keyring
from bench.spec import Spec
from bench.vault.base import Vault
from leaderboard import svg
from leaderboard.figures import Figure
from leaderboard.pictures import as_bytes, frame, picture, tiles

SIDE, GAP, HEAD = 160, 30, 24
CELL = 26


@runtime_checkable
class ShufflingDefence(Protocol):
    """What the figure asks of the defence `block-shuffle` besides the contract of a defence."""

    def shuffled(self, images: np.ndarray, key: int) -> np.ndarray:
        """The transform of images (N×H×W×3, [0,1]), back in [0,1]."""


def figure5(spec: Spec, key: Vault | None) -> Figure:
    """An image, its shuffled blocks apart, and the blocks put together."""
    dataset, keys = datasets.load(spec.dataset), keyring(key)
    defence = registry.defence("block-shuffle", {**spec.defences.get("block-shuffle", {}), "mode": "positions"})
    assert isinstance(defence, ShufflingDefence)
    image, block = dataset.test.first(1).unit(), int(defence.settings.block)
    places, shuffled = permutation(defence, block, keys.private), defence.shuffled(image, keys.private.value)
    title = "Block Pixel Shuffle"
    chart = _chart(as_bytes(image[0]), as_bytes(shuffled[0]), block, places, title)
    caption = (
        f"An image of the {dataset.name} test set (left), its blocks of {block}×{block} pixels with the pixels of every "
        "block in the same new order (middle), and the blocks put together again, as the classifier reads them "
        f"(right). Below, a block before and after, its pixels numbered. {keys.note}"
    )
    rows = [(*divmod(to, block), *divmod(int(source), block)) for to, source in enumerate(places)]
    data_frame = pd.DataFrame(rows, columns=["row", "column", "from_row", "from_column"])
    return Figure("figure5", title, caption, chart, data_frame)


def permutation(defence: ShufflingDefence, block: int, key: Key) -> np.ndarray:
    """For every pixel of a block, row by row, the one that the defence puts there: read off a block of numbers."""
    numbers = np.arange(block**2, dtype=np.float32).reshape(1, block, block, 1) / block**2
    found = defence.shuffled(np.repeat(numbers, 3, axis=3), key.value)[0, :, :, 0]
    places = np.rint(found * block**2).astype(int).ravel()
    if sorted(places) != list(range(block**2)):
        raise UsageError("block-shuffle changes more than the places of pixels here: Figure 5 cannot show that")
    return np.asarray(places)


def _chart(original: np.ndarray, result: np.ndarray, block: int, places: np.ndarray, title: str) -> Markup:
    height, width, _ = result.shape
    blocks = (
        result.reshape(height // block, block, width // block, block, 3).swapaxes(1, 2).reshape(-1, block, block, 3)
    )
    apart = tiles(blocks, width // block, gap=1)
    names = ("original", "shuffled inside blocks", "transformed")
    parts, step = [], SIDE + GAP
    for place, (name, pixels) in enumerate(zip(names, (original, apart, result), strict=True)):
        parts.append(svg.label(place * step + SIDE / 2, 15, name, "middle"))
        parts.append(picture(pixels, place * step, HEAD, SIDE))
    total, top = 3 * SIDE + 2 * GAP, HEAD + SIDE + 20
    side, middle = block * CELL, (3 * SIDE + 2 * GAP) / 2
    parts.append(_numbered(np.arange(len(places)), block, middle - side - GAP, top))
    parts.append(svg.label(middle, top + side / 2 + 4, "→", "middle"))
    parts.append(_numbered(places, block, middle + GAP, top))
    return svg.drawing(parts, title, total, top + side + 4)


def _numbered(places: np.ndarray, block: int, x: float, y: float) -> Markup:
    """A block with the number of the pixel in every place, from 1."""
    parts = []
    for to, source in enumerate(places):
        row, column = divmod(to, block)
        parts.append(frame(x + column * CELL, y + row * CELL, CELL, CELL))
        parts.append(svg.label(x + (column + 0.5) * CELL, y + (row + 0.5) * CELL + 4, str(source + 1), "middle"))
    return Markup("").join(parts)
