"""Figures 14 to 17: LINAC's transform channel by channel, of three images, and of one image under three keys."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup

from bench.data import datasets
from bench.data.datasets import Split
from bench.reproduction.gallery import fits
from bench.reproduction.gallery.fit_errors import settings
from bench.reproduction.gallery.keyring import keyring
from bench.spec import Spec
from bench.vault.base import Vault
from leaderboard import svg
from leaderboard.figures import Figure
from leaderboard.pictures import as_bytes, picture, tiles

COLOURS = ("red", "green", "blue")
WIDTH, TOP_SIDE, HEAD, GAP = 544, 96, 24, 12
BRIGHTEST = 98.0
"""The percentile of the activations above 0 that is shown at full brightness."""


def figure14(spec: Spec, key: Vault | None) -> Figure:
    """Three images under the private key."""
    keys, (images, names) = keyring(key), _three(spec)
    shown = fits.fit(spec, images, keys.private).representation
    title = "LINAC's transform of three images, channel by channel"
    caption = (
        f"One colour per image: where they look alike to LINAC, a channel is grey. {_caption(spec, shown)} {keys.note}"
    )
    return _figure("figure14", shown, images.images, names, title, caption)


def of_keys(name: str, number: int, spec: Spec, key: Vault | None) -> Figure:
    """One of the three images, from 0, under three keys: Figures 15, 16 and 17."""
    keys, (images, _) = keyring(key), _three(spec)
    three = (keys.private, *keys.others)
    shown = np.stack([fits.fit(spec, images, one).representation[number] for one in three])
    title = f"LINAC's transform of one image under three keys, channel by channel (image {number + 1} of 3)"
    caption = f"One colour per key: where they give the same, a channel is grey. {_caption(spec, shown)} {keys.note}"
    pixels = np.repeat(images.images[number : number + 1], 3, axis=0)
    return _figure(name, shown, pixels, [one.name for one in three], title, caption)


def columns(channels: int) -> int:
    """How many channels stand side by side: 16 of 256, 8 of 32."""
    return 1 << math.ceil(math.log2(channels) / 2)


def grid(shown: np.ndarray) -> np.ndarray:
    """Three transforms (3×H×W×channels) as one picture (H'×W'×4, uint8): a square per channel, a colour per transform."""
    lit = shown[shown > 0]
    brightest = float(np.percentile(lit, BRIGHTEST)) if lit.size else 1.0
    return tiles(as_bytes(shown.transpose(3, 1, 2, 0) / brightest), columns(shown.shape[3]), gap=1)


def _three(spec: Spec) -> tuple[Split, list[str]]:
    """The first three test images, and their labels."""
    dataset = datasets.load(spec.dataset)
    images = dataset.examples(3)
    return images, [dataset.classes[label] for label in images.labels]


def _caption(spec: Spec, shown: np.ndarray) -> str:
    alike = [_correlation(shown[i], shown[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    pairs = ", ".join(f"{one:.2f}" for one in alike)
    return (
        f"Every square of the grid is one of {shown.shape[3]} channels at all pixels of the image, black where it is 0. "
        f"Correlation of red with green, red with blue, green with blue: {pairs}. {settings(spec)}"
    )


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def _figure(name: str, shown: np.ndarray, tops: np.ndarray, names: Sequence[str], title: str, caption: str) -> Figure:
    means = shown.mean(axis=(1, 2))
    frame = pd.DataFrame(
        [
            (channel, colour, of, float(means[place, channel]), float((shown[place, :, :, channel] > 0).mean()))
            for channel in range(shown.shape[3])
            for place, (colour, of) in enumerate(zip(COLOURS, names, strict=True))
        ],
        columns=["channel", "colour", "of", "mean", "share_above_0"],
    )
    return Figure(name, title, caption, _chart(grid(shown), tops, names, title), frame)


def _chart(sheet: np.ndarray, tops: np.ndarray, names: Sequence[str], title: str) -> Markup:
    step = WIDTH / 3
    parts = []
    for place, (colour, name) in enumerate(zip(COLOURS, names, strict=True)):
        middle = (place + 0.5) * step
        parts.append(svg.label(middle, 15, f"{colour}: {name}", "middle"))
        parts.append(picture(tops[place], middle - TOP_SIDE / 2, HEAD, TOP_SIDE))
    top, height = HEAD + TOP_SIDE + GAP, WIDTH * sheet.shape[0] / sheet.shape[1]
    parts.append(picture(sheet, 0, top, WIDTH, height))
    return svg.drawing(parts, title, WIDTH, round(top + height))
