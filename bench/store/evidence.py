"""The numbers behind a board's pages, computed from every answer: unions of attacks, who breaks what, smallest sets."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

from bench.store.best_known import Bounds
from bench.store.outcomes import Outcomes
from bench.store.queries import Cell, attack_names
from bench.store.schema import UNJUDGED


@dataclasses.dataclass(frozen=True)
class Breaker:
    """What one attack from one source breaks, of the examples that are right without a perturbation."""

    column: int
    breaks: int
    alone: Bounds
    """How many of those no other counted cell breaks: one number where the others were shown all of them."""
    shown: int
    """How many of the examples that are right without a perturbation it was shown."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One more attack of the greedy cover: how many examples it adds, and how many are left right after it."""

    column: int
    adds: int
    left: Bounds


def names(outcomes: Outcomes) -> list[str]:
    """What each cell is called: attack@source; another setting of the same attack has a number, a reduced one says so."""
    attacks = attack_names(outcomes.cells)
    sources = distinct({cell.source_id: cell.source for cell in outcomes.cells})
    reduced = (" (reduced)" if cell.reduced else "" for cell in outcomes.cells)
    own = (f"{attacks[cell.attack_id]}@{sources[cell.source_id]}" for cell in outcomes.cells)
    return [name + mark for name, mark in zip(own, reduced, strict=True)]


def family(source: str) -> tuple[str, int] | None:
    """('surrogate', 3) for `surrogate:3`; None for a source that stands alone."""
    found = re.fullmatch(r"(.+):(\d+)", source)
    return (found[1], int(found[2])) if found else None


def distinct(names: dict[int, str]) -> dict[int, str]:
    """Names by id; the same name again (another training of a source, say) gets a number."""
    named: dict[int, str] = {}
    for identity in sorted(names):
        name, extra = names[identity], 2
        while name in named.values():
            name, extra = f"{names[identity]} ({extra})", extra + 1
        named[identity] = name
    return named


def withstood(outcomes: Outcomes, columns: Sequence[int]) -> np.ndarray:
    """Which examples (N, bool) are right under all of these cells; not limited to those right without a perturbation."""
    return np.asarray(outcomes.correct[:, list(columns)].all(axis=1))


def unbroken(outcomes: Outcomes, columns: Sequence[int]) -> np.ndarray:
    """Which examples (N, bool) none of these cells has broken, be it that one was not shown them."""
    return np.asarray(~outcomes.wrong[:, list(columns)].any(axis=1))


def left_right(outcomes: Outcomes, columns: Sequence[int]) -> Bounds:
    """How many examples are right under all of these cells: one number where each was shown them all."""
    return Bounds(int(withstood(outcomes, columns).sum()), int(unbroken(outcomes, columns).sum()))


def best_known(outcomes: Outcomes, columns: Sequence[int] | None = None) -> np.ndarray | None:
    """Which examples (N, bool) are right without a perturbation and under these cells (all that count, if not given)."""
    chosen = outcomes.counted if columns is None else columns
    if outcomes.clean is None or not chosen:
        return None
    return np.asarray(outcomes.clean & withstood(outcomes, chosen))


def known_count(outcomes: Outcomes, columns: Sequence[int]) -> Bounds | None:
    """How many those are: one number where each of the cells was shown all of them, and over all cells that count.

    What some of all those were not shown was broken elsewhere, and is not right under everything.
    """
    mask = best_known(outcomes, columns)
    if mask is None or outcomes.clean is None:
        return None
    least = int(mask.sum())
    if set(outcomes.counted) <= set(columns):
        return Bounds(least, least)
    return Bounds(least, int((outcomes.clean & unbroken(outcomes, columns)).sum()))


def broken_elsewhere(outcomes: Outcomes) -> np.ndarray | None:
    """Which examples (N, bool) no counted cell broke that are not right under everything all the same.

    A cell broke them that is not complete, and so were not shown to others.
    """
    right = best_known(outcomes)
    if right is None or outcomes.clean is None:
        return None
    return np.asarray(outcomes.clean & ~right & unbroken(outcomes, outcomes.counted))


def by_strategy(outcomes: Outcomes) -> dict[str, list[int]]:
    """The counted columns of every strategy."""
    chosen: dict[str, list[int]] = {}
    for column in outcomes.counted:
        chosen.setdefault(outcomes.cells[column].strategy, []).append(column)
    return chosen


def strategies(cells: Iterable[Cell]) -> dict[str, tuple[str, str]]:
    """The strategies of some cells in their order: what people call each (no two the same), and what it does."""
    found = {cell.strategy: cell.source_about for cell in cells}
    order = sorted(found, key=lambda name: (found[name].strategy_place, name))
    labels = [found[name].strategy_label for name in order]
    return {
        name: (label if labels.count(label) == 1 else f"{label} ({name})", found[name].strategy_meaning)
        for name, label in zip(order, labels, strict=True)
    }


def strongest_strategy(outcomes: Outcomes) -> tuple[str, int] | None:
    """What people call the strategy that leaves the fewest examples right by itself, and how many it leaves.

    None where that is not known, for others were shown only what it had left, or it what they had.
    """
    left = {name: known_count(outcomes, columns) for name, columns in by_strategy(outcomes).items()}
    bounds = [one for one in left.values() if one is not None]
    known = [(one.least, name) for name, one in left.items() if one is not None and one.exact]
    if not known or min(known)[0] > min(one.least for one in bounds):
        return None
    count, name = min(known)
    return strategies(outcomes.cells)[name][0], count


def families(cells: Iterable[Cell]) -> dict[str, list[str]]:
    """Sources that come in numbers, such as surrogate:1 to surrogate:10, in their order; only where there are several."""
    found: dict[str, dict[str, int]] = {}
    places: dict[str, int] = {}
    for cell in cells:
        if parsed := family(cell.source):
            name, number = parsed
            found.setdefault(name, {})[cell.source] = number
            places[name] = cell.source_about.place
    several = [name for name in sorted(found, key=lambda name: (places[name], name)) if len(found[name]) > 1]
    return {name: sorted(found[name], key=found[name].__getitem__) for name in several}


def by_members(outcomes: Outcomes) -> dict[str, list[Bounds]]:
    """Best Known against the first 1, 2, … k members of every family of sources (the paper's Figure 3)."""
    cells, counted = outcomes.cells, outcomes.counted
    curves = {}
    for name, members in families(cells[c] for c in counted).items():
        counts, columns = [], list[int]()
        for member in members:
            columns += [c for c in counted if cells[c].source == member]
            bounds = known_count(outcomes, columns)
            if bounds is not None:
                counts.append(bounds)
        if counts:
            curves[name] = counts
    return curves


def breakers(outcomes: Outcomes) -> list[Breaker]:
    """What each counted cell breaks, and what it alone breaks, the strongest first."""
    if outcomes.clean is None:
        return []
    counted = outcomes.counted
    broken = outcomes.wrong[:, counted] & outcomes.clean[:, None]
    shown = outcomes.shown[:, counted] & outcomes.clean[:, None]
    by_one, by_all = broken.sum(axis=1) == 1, shown.sum(axis=1) == len(counted)
    found = [
        Breaker(
            column,
            int(broken[:, place].sum()),
            Bounds(int((broken[:, place] & by_one & by_all).sum()), int((broken[:, place] & by_one).sum())),
            int(shown[:, place].sum()),
        )
        for place, column in enumerate(counted)
    ]
    return sorted(found, key=lambda breaker: (-breaker.breaks, breaker.column))


def cover(outcomes: Outcomes) -> list[Step]:
    """A small set of cells that gives Best Known: always the one next that is seen to break most of what is left (greedy).

    What only a cell broke that is not complete is no part of it.
    """
    elsewhere = broken_elsewhere(outcomes)
    if elsewhere is None or outcomes.clean is None:
        return []
    columns = outcomes.counted
    standing = outcomes.clean & ~elsewhere
    broken = outcomes.wrong[:, columns] & standing[:, None]
    withstood_so_far = standing.copy()
    steps: list[Step] = []
    while columns:
        gains = broken[standing].sum(axis=0)
        best = int(gains.argmax())
        if gains[best] == 0:
            break
        standing &= ~broken[:, best]
        withstood_so_far &= outcomes.correct[:, columns[best]]
        left = Bounds(int(withstood_so_far.sum()), int(standing.sum()))
        steps.append(Step(columns[best], int(gains[best]), left))
    return steps


def cheapest_first(outcomes: Outcomes) -> list[int]:
    """The counted columns by what they cost an example, in gradients and queries: the order of 'broken first by'.

    One that was shown nothing comes last.
    """
    cells = outcomes.cells

    def cost(column: int) -> tuple[float, str, str]:
        cell = cells[column]
        each = (cell.gradients + cell.queries) / cell.n_done if cell.n_done else math.inf
        return (each, cell.attack, cell.source)

    return sorted(outcomes.counted, key=cost)


def shown_cells(outcomes: Outcomes) -> np.ndarray:
    """For every example (N, int) the cell its card shows: the cheapest that breaks it, else the closest; -1 if none.

    A cell that is not complete is shown of what it broke before others were shown it.
    """
    order = cheapest_first(outcomes)
    if not order:
        return np.full(len(outcomes.labels), -1)
    wrong, shown = outcomes.wrong[:, order], outcomes.shown[:, order]
    first = wrong.argmax(axis=1)
    closest = np.where(shown, outcomes.margin[:, order], np.inf).argmin(axis=1)
    chosen = np.array(order)[np.where(wrong.any(axis=1), first, closest)]
    found = np.where(shown.any(axis=1), chosen, -1)
    elsewhere = broken_elsewhere(outcomes)
    if elsewhere is not None and elsewhere.any():
        breaks = outcomes.wrong & np.array([cell.inside_threat_model and judged(cell) for cell in outcomes.cells])
        found = np.where(elsewhere & breaks.any(axis=1), breaks.argmax(axis=1), found)
    return found


def judged(cell: Cell) -> bool:
    """Whether what a cell says was judged here."""
    return cell.imported != UNJUDGED
