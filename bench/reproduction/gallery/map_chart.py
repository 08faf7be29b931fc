"""How decision maps are drawn: a colour a class, a row a model, a column an example."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from bench.data.datasets import Split
from bench.reproduction.gallery.pictures import frame, picture
from leaderboard import svg

SIDE, GAP, LEFT, THUMB = 96, 8, 148, 48
COLOURS = (
    (78, 121, 167), (242, 142, 43), (89, 161, 79), (225, 87, 89), (118, 183, 178),
    (237, 201, 72), (176, 122, 161), (255, 157, 167), (156, 117, 95), (186, 176, 172),
)  # fmt: skip


def palette(count: int) -> np.ndarray:
    """A colour a class (count×3, uint8)."""
    if count <= len(COLOURS):
        return np.array(COLOURS[:count], np.uint8)
    turns = [colorsys.hsv_to_rgb(i / count, 0.45 + 0.25 * (i % 2), 0.9 - 0.2 * (i % 3 == 0)) for i in range(count)]
    return (255 * np.array(turns)).astype(np.uint8)


def chart(
    maps: Mapping[str, np.ndarray], examples: Split, classes: Sequence[str], reach: float, epsilon: float, title: str
) -> Markup:
    """A row a model, by its title (N×points×points, classes), a column an example; maps go to ±reach."""
    colours, step, count = palette(len(classes)), SIDE + GAP, len(examples)
    top, parts = THUMB + 32, []
    for place in range(count):
        middle = LEFT + place * step + SIDE / 2
        parts.append(svg.label(middle, 14, classes[examples.labels[place]], "middle"))
        parts.append(picture(examples.images[place], middle - THUMB / 2, 22, THUMB))
    for row, (name, found) in enumerate(maps.items()):
        y = top + row * step
        parts.append(svg.label(0, y + SIDE / 2 + 4, name))
        for place in range(count):
            x = LEFT + place * step
            parts.append(picture(colours[found[place]], x, y, SIDE))
            parts.append(_ball(x + SIDE / 2, y + SIDE / 2, epsilon / reach * SIDE / 2))
            parts.append(frame(x, y, SIDE, SIDE))
    bottom, width = top + len(maps) * step, LEFT + count * step - GAP
    told = f"→ adversarial direction, ↑ random direction, each from −{reach:g} to {reach:g} in L2"
    parts.append(svg.label(width / 2, bottom + 10, told, "middle"))
    shown = np.unique(np.concatenate([found.ravel() for found in maps.values()]))
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
