"""Figure 4, decision maps: which class five models give to images around five examples, one colour per class."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup

from bench.data.datasets import Split
from bench.reproduction.gallery import maps
from bench.reproduction.gallery.classifiers import ADVERSARIAL, TITLES
from bench.reproduction.gallery.maps import Maps
from bench.spec import Spec
from bench.vault.base import Vault
from leaderboard import svg, words
from leaderboard.figures import Figure
from leaderboard.pictures import frame, picture

SIDE, GAP, LEFT, THUMB = 96, 8, 148, 48
COLOURS = (
    (78, 121, 167), (242, 142, 43), (89, 161, 79), (225, 87, 89), (118, 183, 178),
    (237, 201, 72), (176, 122, 161), (255, 157, 167), (156, 117, 95), (186, 176, 172),
)  # fmt: skip


def figure4(spec: Spec, key: Vault | None, may_train: bool, say: Callable[[str], None]) -> Figure:
    """The maps of every model that can be had; the caption says which cannot."""
    found = maps.compute(spec, key, may_train, say)
    title = "Decisions of models around the same examples"
    rows = {TITLES[name]: classes for name, classes in found.classes.items()}
    reach = float(found.plane.offsets[-1])
    drawing = chart(rows, found.plane.examples, found.labels, reach, found.epsilon, title)
    return Figure("figure4", title, _caption(found), drawing, _frame(found))


def palette(count: int) -> np.ndarray:
    """One colour per class (count×3, uint8)."""
    if count <= len(COLOURS):
        return np.array(COLOURS[:count], np.uint8)
    turns = [colorsys.hsv_to_rgb(i / count, 0.45 + 0.25 * (i % 2), 0.9 - 0.2 * (i % 3 == 0)) for i in range(count)]
    return (255 * np.array(turns)).astype(np.uint8)


def chart(
    by_model: Mapping[str, np.ndarray],
    examples: Split,
    classes: Sequence[str],
    reach: float,
    epsilon: float,
    title: str,
) -> Markup:
    """One row per model, by its title (N×points×points, classes), one column per example; maps go to ±reach."""
    colours, step, count = palette(len(classes)), SIDE + GAP, len(examples)
    top, parts = THUMB + 32, []
    for place in range(count):
        middle = LEFT + place * step + SIDE / 2
        parts.append(svg.label(middle, 14, classes[examples.labels[place]], "middle"))
        parts.append(picture(examples.images[place], middle - THUMB / 2, 22, THUMB))
    for row, (name, found) in enumerate(by_model.items()):
        y = top + row * step
        parts.append(svg.label(0, y + SIDE / 2 + 4, name))
        for place in range(count):
            x = LEFT + place * step
            parts.append(picture(colours[found[place]], x, y, SIDE))
            parts.append(_ball(x + SIDE / 2, y + SIDE / 2, epsilon / reach * SIDE / 2))
            parts.append(frame(x, y, SIDE, SIDE))
    bottom, width = top + len(by_model) * step, LEFT + count * step - GAP
    directions = f"→ adversarial direction, ↑ random direction, each from −{reach:g} to {reach:g} in L2"
    parts.append(svg.label(width / 2, bottom + 10, directions, "middle"))
    shown = np.unique(np.concatenate([found.ravel() for found in by_model.values()]))
    legend, height = _legend(shown, classes, colours, bottom + 24, width)
    return svg.drawing([*parts, legend], title, width, bottom + 24 + height)


def _ball(x: float, y: float, radius: float) -> Markup:
    """A circle that shows on any colour."""
    ring = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="none" stroke="{}" stroke-width="{}"/>')
    return ring.format(x, y, radius, "white", 3) + ring.format(x, y, radius, "black", 1)


def _legend(
    shown: np.ndarray, classes: Sequence[str], colours: np.ndarray, top: float, width: float
) -> tuple[Markup, float]:
    """The classes on the maps with their colours, and how high that is."""
    each = 110
    in_a_row = max(1, int(width // each))
    parts = []
    for place, number in enumerate(shown):
        row, column = divmod(place, in_a_row)
        x, y = column * each, top + row * 20
        fill = "#{:02x}{:02x}{:02x}".format(*colours[number])
        parts.append(Markup('<rect x="{}" y="{}" width="12" height="12" fill="{}"/>').format(x, y, fill))
        parts.append(svg.label(x + 18, y + 10, classes[number]))
    return Markup("").join(parts), 20 * -(-len(shown) // in_a_row)


def _caption(found: Maps) -> str:
    reach, guide = f"{found.plane.offsets[-1]:g}", found.guide
    guided = "" if guide == ADVERSARIAL else ", in place of at-l2, which is not trained yet"
    parts = [
        f"Every point is an image, its colour the class that a model gives it. In the middle of a map is an example, to "
        f"its right the direction in which PGD makes {guide} err{guided}, upwards one random direction, the same for "
        f"all, both {reach} far in L2; images are cut off to [0,1]. The circle is ε = {words.epsilon(found.epsilon)}."
    ]
    for name, reason in found.left_out.items():
        parts.append(f"{TITLES[name].replace('  ', ' (')}) is left out: {reason}.")
    return " ".join(parts)


def _frame(found: Maps) -> pd.DataFrame:
    """One row per point."""
    frames, offsets = [], found.plane.offsets
    for name, classes in found.classes.items():
        example, row, column = np.indices(classes.shape).reshape(3, -1)
        frames.append(
            pd.DataFrame(
                {
                    "model": name,
                    "example": found.plane.places[example],
                    "horizontal": offsets[column].round(6),
                    "vertical": offsets[::-1][row].round(6),
                    "class": np.array(found.labels)[classes.ravel()],
                }
            )
        )
    return pd.concat(frames, ignore_index=True)
