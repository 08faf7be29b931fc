"""Figures 12 and 13: images, what LINAC's networks make of them, and the difference."""

from __future__ import annotations

import numpy as np
import pandas as pd
from markupsafe import Markup

from bench.data import datasets
from bench.data.datasets import Dataset, Split
from bench.reproduction.gallery import fits
from bench.reproduction.gallery.fit_errors import settings
from bench.reproduction.gallery.keyring import Key, keyring
from bench.spec import Spec
from bench.vault.base import Vault
from leaderboard import svg
from leaderboard.figures import Figure
from leaderboard.pictures import as_bytes, picture

MOST = 10
BLOCKS = 2
SIDE, GAP, HEAD, FOOT = 76, 8, 24, 24
MAGNIFIED = 2
"""How much differences are magnified, around grey."""


def figure12(spec: Spec, key: Vault | None) -> Figure:
    """With the private key."""
    keys = keyring(key)
    return _figure("figure12", spec, keys.private, "Images as LINAC fits them", keys.note)


def figure13(spec: Spec, key: Vault | None) -> Figure:
    """The same images with another key."""
    keys = keyring(key)
    note = "The images are those of Figure 12, the key is another, of an attacker."
    return _figure("figure13", spec, keys.others[0], "The same images under another key", note)


def _figure(name: str, spec: Spec, key: Key, title: str, note: str) -> Figure:
    dataset = datasets.load(spec.dataset)
    places, images = one_of_each_class(dataset)
    fitted = fits.fit(spec, images, key)
    labels = [dataset.classes[label] for label in images.labels]
    chart = _chart(images, fitted.reconstruction, labels, fitted.errors, title)
    frame = pd.DataFrame({"example": places, "label": labels, "key": key.name, "squared_error": fitted.errors})
    caption = (
        "The original with its label, which the fit does not use; what the fitted network gives; and the difference, "
        f"{MAGNIFIED} times magnified around grey, with the squared error, summed over channels and averaged over "
        f"pixels, in standardised colours: {fitted.errors.mean():.5f} on average. {settings(spec)} {note}"
    )
    return Figure(name, title, caption, chart, frame)


def one_of_each_class(dataset: Dataset) -> tuple[np.ndarray, Split]:
    """The first test example of every class, of ten at most, and where they are in the test set."""
    places = np.unique(dataset.test.labels, return_index=True)[1][:MOST]
    return places, Split(dataset.test.images[places], dataset.test.labels[places])


def _chart(images: Split, reconstructions: np.ndarray, labels: list[str], errors: np.ndarray, title: str) -> Markup:
    """Two blocks of rows side by side, each with three columns."""
    originals, rows = images.unit(), -(-len(images) // BLOCKS)
    differences = as_bytes(0.5 + MAGNIFIED * (originals - reconstructions))
    block = 3 * (SIDE + GAP) + 2 * GAP
    width, height = BLOCKS * block - 2 * GAP, HEAD + rows * (SIDE + FOOT)
    parts = [
        svg.label(number * block + column * (SIDE + GAP) + SIDE / 2, 15, name, "middle")
        for number in range(min(BLOCKS, len(images)))
        for column, name in enumerate(("original", "network", "difference"))
    ]
    for place in range(len(images)):
        number, row = divmod(place, rows)
        x, y = number * block, HEAD + row * (SIDE + FOOT)
        columns = (images.images[place], as_bytes(reconstructions[place]), differences[place])
        parts += [picture(pixels, x + column * (SIDE + GAP), y, SIDE) for column, pixels in enumerate(columns)]
        parts.append(svg.label(x + SIDE / 2, y + SIDE + 15, labels[place], "middle"))
        parts.append(svg.label(x + 2 * (SIDE + GAP) + SIDE / 2, y + SIDE + 15, f"{errors[place]:.4f}", "middle"))
    return svg.drawing(parts, title, width, height)
