"""The figures of the pages. Each takes plain data and gives a figure with its caption and its data as CSV."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from bench.store.best_known import Bounds
from bench.store.frames import percent
from bench.store.key_searches import KeySearch
from leaderboard import svg, words
from leaderboard.svg import Axis, Point, Range, Series

BEST_KEYS = 10
_BOUNDS = ("best_known_least", "best_known_most")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A chart, what it shows, and its data."""

    name: str
    title: str
    caption: str
    chart: Markup
    data: pd.DataFrame


@dataclasses.dataclass(frozen=True)
class KeySearchSection:
    """Figure 2 and Table 4: the histogram of all guesses, and the best of them: (where from, share right, images)."""

    search: KeySearch
    figure: Figure
    best: Sequence[tuple[str, float, int]]


def surrogates(
    norm: str,
    curves: Mapping[str, Sequence[Bounds]],
    n_examples: int,
    clean: int | None,
    published: Mapping[str, Sequence[tuple[int, float]]] | None = None,
    reduced: Sequence[str] = (),
) -> Figure:
    """Best Known against the number of surrogates used together (the paper's Figure 3), a bar where only bounds are known.

    `published` has numbers of the paper to compare with, as (number of surrogates, percent); `reduced` names the attacks
    that try less than they were published with.
    """
    ends = published or {}
    numbers = [2, *(len(counts) for counts in curves.values()), *(k for points in ends.values() for k, _ in points)]
    axis = Axis("surrogates used together", 1, max(numbers), [(k, str(k)) for k in range(1, max(numbers) + 1)])
    title = f"Best Known against the number of surrogates, {words.norm(norm)}"
    kinds = list(dict.fromkeys([*curves, *ends]))
    lines = [_curve(kind, curves.get(kind, ()), n_examples) for kind in kinds]
    lines += [
        Series(f"{kind}, paper", [Point(k, share) for k, share in points], dashed_from=kinds.index(kind))
        for kind, points in ends.items()
    ]
    data = _surrogates_frame(norm, curves, n_examples, reduced)
    if published is not None:
        paper = pd.DataFrame(
            [(norm, kind, k, share) for kind, points in ends.items() for k, share in points],
            columns=["norm", "sources", "number", "paper"],
        )
        data = data.merge(paper, on=["norm", "sources", "number"], how="outer")
        data = data[[*(name for name in data if name not in _BOUNDS), *_BOUNDS]]
        data = data.astype({"correct": "Int64", "examples": "Int64"})
    references = [("clean", 100 * clean / n_examples)] if clean is not None else []
    chart = svg.lines(lines, axis, title=title, references=references)
    any_range = any(line.ranges for line in lines)
    caption = (
        "Examples that stay right under every attack from the first k surrogates of a kind. Whiskers: 95 % interval."
        + (" Bars: only so much is known, as some of them were shown what others had left." if any_range else "")
        + (" Dashed: from the paper's first to its last number." if ends else "")
        + (f" On reduced budgets: {', '.join(reduced)}." if reduced else "")
    )
    return Figure(f"surrogates-{norm}", title, caption, chart, data)


def _curve(kind: str, counts: Sequence[Bounds], total: int) -> Series:
    known = [point(k, bounds.least, total) for k, bounds in enumerate(counts, 1) if bounds.exact]
    ranges = [
        Range(k, 100 * bounds.least / total, 100 * bounds.most / total)
        for k, bounds in enumerate(counts, 1)
        if not bounds.exact
    ]
    return Series(kind, known, ranges=ranges)


def _surrogates_frame(
    norm: str, curves: Mapping[str, Sequence[Bounds]], total: int, reduced: Sequence[str]
) -> pd.DataFrame:
    rows = []
    for kind, counts in curves.items():
        for k, bounds in enumerate(counts, 1):
            least, most = percent(bounds.least / total), percent(bounds.most / total)
            known = bounds.least if bounds.exact else None
            shares = (least if bounds.exact else None, least, most)
            rows.append((norm, kind, k, known, total, *shares, ", ".join(reduced)))
    columns = ["norm", "sources", "number", "correct", "examples", "best_known", *_BOUNDS, "reduced"]
    return pd.DataFrame(rows, columns=columns).astype({"correct": "Int64"})


class Size(NamedTuple):
    """What a board of one epsilon says: counts of examples, and what of it is on reduced budgets."""

    epsilon: float
    known: int
    clean: int
    examples: int
    reduced: str


def against_epsilon(norm: str, points: Sequence[Size]) -> Figure | None:
    """Accuracy against the size of the ball, from one board of each."""
    if len({point.epsilon for point in points}) < 2:
        return None
    ordered = sorted(points)
    axis = Axis(
        "size of the perturbation, ε", 0, ordered[-1].epsilon,
        [(0.0, "0")] + [(e, words.epsilon(e)) for e in _apart([one.epsilon for one in ordered])],
    )  # fmt: skip
    title = f"Accuracy against ε, {words.norm(norm)}"
    clean, total = ordered[0].clean, ordered[0].examples
    known = Series("Best Known", [point(0, clean, total), *(point(p.epsilon, p.known, p.examples) for p in ordered)])
    data = pd.DataFrame(
        [(norm, 0.0, clean, total, percent(clean / total), "")]
        + [(norm, p.epsilon, p.known, p.examples, percent(p.known / p.examples), p.reduced) for p in ordered],
        columns=["norm", "epsilon", "correct", "examples", "best_known", "reduced"],
    )
    caption = (
        "Best Known of this defence on each of its boards; at 0 stands its clean accuracy. "
        "Every board counts the attacks that were run on it, which need not be the same."
    )
    if fewer := [f"at {words.epsilon(one.epsilon)} {one.reduced}" for one in ordered if one.reduced]:
        caption += f" Of the cells behind it, {'; '.join(fewer)}."
    return Figure(f"epsilon-{norm}", title, caption, svg.lines([known], axis, title=title), data)


def key_search_section(search: KeySearch | None) -> KeySearchSection | None:
    """How guessed keys fare against the right one (the paper's Figure 2 and Table 4); None without a guess.

    A guess is named by where it came from, never by its value: a page must not give away a key.
    """
    if search is None or not search.guesses:
        return None
    accuracies = np.array([100 * guess.accuracy for guess in search.guesses])
    defended = 100 * search.defended_accuracy
    counts, edges = np.histogram(accuracies, bins=np.arange(0, 102, 2))
    axis = Axis("accuracy with a guessed key, %", 0, 102, [(v, str(v)) for v in (0, 25, 50, 75, 100)])
    title = "Accuracy of the defended classifier under guessed keys"
    chart = svg.histogram(edges.tolist(), counts.tolist(), axis, title=title, marker=("right key", defended))
    data = pd.DataFrame({"from": edges[:-1], "to": edges[1:], "keys": counts})
    best = [
        ("as good as the key" if search.reached(guess) else guess.origin, guess.accuracy, guess.images)
        for guess in search.guesses[:BEST_KEYS]
    ]
    caption = (
        f"{words.plural(len(search.guesses), 'guessed key')} on up to "
        f"{words.plural(search.n_images, f'{search.split} image')}: "
        f"{accuracies.mean():.1f} % right on average, {100 * best[0][1]:.1f} % with the best; the right key gives "
        f"{defended:.1f} %. Hopeless keys are dropped early, so their share is over a few images."
    )
    return KeySearchSection(search, Figure(f"key-search-{search.id}", title, caption, chart, data), best)


def point(x: float, count: int, total: int) -> Point:
    """A share of examples at x, in percent, with its interval."""
    low, high = words.bounds(count, total)
    return Point(x, 100 * count / total, low, high)


def _apart(values: Sequence[float]) -> list[float]:
    """The values whose labels have room beside each other, the largest always among them."""
    least = (max(values) or 1.0) / 7
    chosen: list[float] = []
    for value in sorted(set(values), reverse=True):
        if value >= least and (not chosen or chosen[-1] - value >= least):
            chosen.append(value)
    return chosen
