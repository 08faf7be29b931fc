"""Figures 10 and 11: how well LINAC's networks fit the test images, step by step and in the end."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from bench.data import datasets
from bench.reproduction.gallery import fits
from bench.reproduction.gallery.keyring import keyring
from bench.spec import Spec
from bench.vault.base import Vault
from leaderboard import svg, words
from leaderboard.figures import Figure
from leaderboard.svg import Axis, Point

PAPER_ERROR = 0.04325
"""The mean of the last errors over CIFAR-10's test images at the paper's settings, as it reports it."""
BINS = 30


def figure10(spec: Spec, key: Vault | None, say: Callable[[str], None]) -> Figure:
    """The error against the step: mean and standard deviation over the images."""
    found, of_what = _errors(spec, key, say)
    mean, deviation = found.curves.mean(axis=0), found.curves.std(axis=0)
    steps = np.arange(len(mean))
    title = "Fitting LINAC's networks to the test images"
    axis = Axis("steps of the fit", 0, len(steps), [(tick, f"{tick:g}") for tick in _ticks(len(steps))])
    points = [
        Point(step, m, m - d, m + d)
        for step, m, d in zip(steps.tolist(), mean.tolist(), deviation.tolist(), strict=True)
    ]
    chart = svg.log_band(points, axis, title=title, y_label="squared error")
    caption = (
        "Squared error after so many steps on the pixels of the next mini-batch, summed over channels, averaged over "
        f"pixels, in standardised colours: mean and standard deviation over {of_what}"
    )
    frame = pd.DataFrame({"steps": steps, "mean": mean, "deviation": deviation})
    return Figure("figure10", title, caption, chart, frame)


def figure11(spec: Spec, key: Vault | None, say: Callable[[str], None]) -> Figure:
    """How many images end with which error."""
    found, of_what = _errors(spec, key, say)
    counts, edges = np.histogram(found.final, bins=BINS, range=(0.0, float(found.final.max())))
    mean, largest = float(found.final.mean()), float(edges[-1])
    title = "What LINAC's networks leave out of the test images"
    axis = Axis("squared error after the fit", 0, largest, [(tick, f"{tick:g}") for tick in _ticks(largest)])
    chart = svg.histogram(
        edges.tolist(), counts.tolist(), axis, title=title, marker=("mean", mean), what="images", unit="", digits=3
    )
    caption = (
        "Squared error on the whole image after the last step, summed over channels, averaged over pixels, in "
        f"standardised colours, of {of_what}"
    )
    frame = pd.DataFrame({"from": edges[:-1], "to": edges[1:], "images": counts})
    return Figure("figure11", title, caption, chart, frame)


def _errors(spec: Spec, key: Vault | None, say: Callable[[str], None]) -> tuple[fits.Errors, str]:
    """The errors of the preset's examples, and the end of a caption that says of what."""
    dataset, keys = datasets.load(spec.dataset), keyring(key)
    images = dataset.examples(spec.examples)
    found = fits.errors(spec, images, keys.private, say)
    of_what = (
        f"{words.plural(len(images), f'{dataset.name} test image')}, {found.final.mean():.5f} in the end on average; "
        f"the paper has {PAPER_ERROR} over the CIFAR-10 test set at its own settings. "
        f"{settings(spec)} {keys.note}"
    )
    return found, of_what


def settings(spec: Spec) -> str:
    """LINAC's settings as a sentence."""
    return f"LINAC has {words.settings(dataclasses.asdict(fits.defence(spec).settings))}."


def _ticks(largest: float) -> list[float]:
    """Round numbers up to the largest value, 0 among them: at most six."""
    power = 10.0 ** math.floor(math.log10(largest / 5))
    apart = next(power * digit for digit in (1, 2, 5, 10) if largest / (power * digit) <= 5)
    return [apart * place for place in range(int(largest / apart) + 1)]
