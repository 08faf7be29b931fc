"""Small charts as inline SVG: no library to load, and they take their colours from the page's theme."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 30, 44

STANDALONE_STYLE = (
    "svg{background:#fff}text{font:12px system-ui,sans-serif;fill:#50565e}.grid{stroke:#e3e6ea}.axis{stroke:#9aa1a9}"
    ".line{fill:none;stroke-width:2}.s0{--c:#0b5cad}.s1{--c:#b3470b}.s2{--c:#2f7d4f}.s3{--c:#7a3fa0}"
    ".line,.whisker,.range{stroke:var(--c)}.range{stroke-width:7;opacity:.35}.dot,.bar{fill:var(--c)}.band{fill:var(--c);opacity:.2}"
    ".dashed.line{stroke-dasharray:5 4;stroke-width:1.5}.dashed.dot{fill:#fff;stroke:var(--c)}"
    ".reference{stroke:#50565e;stroke-dasharray:5 4}.name{fill:var(--c);font-weight:600}.frame{fill:none;stroke:#9aa1a9}"
    "@media(prefers-color-scheme:dark){svg{background:#131518}text{fill:#a9b0b8}.grid{stroke:#31363c}"
    ".axis,.frame{stroke:#565d66}.dashed.dot{fill:#131518}.reference{stroke:#a9b0b8}"
    ".s0{--c:#6fb0ff}.s1{--c:#ff9c5b}.s2{--c:#6cce91}.s3{--c:#cc9bf0}.name{fill:var(--c)}}"
)
"""The rules for `.chart` of the pages' style sheet, for a chart by itself."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A value at x (in percent, but for `log_band`), with its interval where it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Range:
    """What is known of a value at x (percent): that it is between two."""

    x: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Series:
    """Points joined by a line, and places of which less is known."""

    name: str
    points: Sequence[Point]
    dashed_from: int | None = None
    """For a line to compare with: the place of the line whose colour it takes. It is dashed and has no name above."""
    ranges: Sequence[Range] = ()


@dataclasses.dataclass(frozen=True)
class Axis:
    """What a horizontal axis shows: its label, its range, and its ticks with their texts."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def at(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return LEFT + (value - self.low) / span * (WIDTH - LEFT - RIGHT)


def lines(
    series: Sequence[Series],
    axis: Axis,
    *,
    title: str,
    references: Sequence[tuple[str, float]] = (),
    y_label: str = "accuracy %",
) -> Markup:
    """Accuracies (0 to 100) against x, one line per series, their names above, and dashed lines for references."""
    parts = [_percent_grid(), _x_axis(axis), _y_label(y_label)]
    for name, value in references:
        parts.append(
            Markup('<line class="reference" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>').format(
                LEFT, WIDTH - RIGHT, y=_y(value)
            )
        )
        parts.append(label(LEFT + 6, _y(value) - 5, f"{name} {value:.1f}"))
    for place, one in enumerate(series):
        own = one.dashed_from is None
        parts.append(_line(one, axis, f"s{place % 4}" if own else f"s{(one.dashed_from or 0) % 4} dashed"))
    parts.append(_names([one for one in series if one.dashed_from is None]))
    return drawing(parts, title)


def log_band(points: Sequence[Point], axis: Axis, *, title: str, y_label: str) -> Markup:
    """Values above 0 on a logarithmic scale as a line, in the band of their intervals, cut off at the lowest decade."""
    floor = math.floor(math.log10(min(point.y for point in points)))
    ceiling = max(floor + 1, math.ceil(math.log10(max(point.high or point.y for point in points))))

    def y(value: float) -> float:
        share = (math.log10(max(value, 10**floor)) - floor) / (ceiling - floor)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [_x_axis(axis), _y_label(y_label)]
    for power in range(floor, ceiling + 1):
        for value in [10.0**power * part for part in (1, 2, 5) if power < ceiling or part == 1]:
            parts.append(
                Markup('<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>').format(
                    LEFT, WIDTH - RIGHT, y=y(value)
                )
            )
            if ceiling - floor <= 2 or value == 10.0**power:
                parts.append(label(LEFT - 6, y(value) + 4, f"{value:g}", "end"))
    low = [(axis.at(point.x), y(point.y if point.low is None else point.low)) for point in points]
    high = [(axis.at(point.x), y(point.y if point.high is None else point.high)) for point in points]
    line = [(axis.at(point.x), y(point.y)) for point in points]
    parts.append(Markup('<polygon class="band s0" points="{}"/>').format(_path([*high, *reversed(low)])))
    parts.append(Markup('<polyline class="line s0" points="{}"/>').format(_path(line)))
    return drawing(parts, title)


def histogram(
    edges: Sequence[float],
    counts: Sequence[int],
    axis: Axis,
    *,
    title: str,
    marker: tuple[str, float] | None,
    what: str = "keys",
    unit: str = " %",
    digits: int = 0,
) -> Markup:
    """Bars between edges, and one marked place. They count `what`, at values of a unit, written with so many digits."""
    highest = max(counts, default=0) or 1
    parts = [_x_axis(axis), _y_label(f"number of {what}"), label(LEFT - 6, TOP + 10, f"{highest:,}", "end")]
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        height = count / highest * (HEIGHT - TOP - BOTTOM)
        if count:
            parts.append(
                Markup(
                    '<rect class="bar s0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                    "<title>{} {} from {} to {}{}</title></rect>"
                ).format(
                    axis.at(low) + 0.5, HEIGHT - BOTTOM - height, max(axis.at(high) - axis.at(low) - 1, 1), height,
                    count, what, f"{low:.{digits}f}", f"{high:.{digits}f}", unit,
                )
            )  # fmt: skip
    if marker:
        name, value = marker
        x = axis.at(value)
        parts.append(
            Markup('<line class="reference" x1="{x:.1f}" x2="{x:.1f}" y1="{}" y2="{}"/>').format(
                TOP, HEIGHT - BOTTOM, x=x
            )
        )
        in_the_left_half = x < (LEFT + WIDTH - RIGHT) / 2
        text = f"{name} {value:.{digits + 1}f}"
        parts.append(label(x + (6 if in_the_left_half else -6), TOP + 10, text, "start" if in_the_left_half else "end"))
    return drawing(parts, title)


def standalone(chart: Markup) -> str:
    """The chart as a file of its own, light or dark as its reader's system is."""
    opening, rest = str(chart).split(">", 1)
    return f'{opening} xmlns="http://www.w3.org/2000/svg"><style>{STANDALONE_STYLE}</style>{rest}'


def stacked(charts: Sequence[Markup]) -> str:
    """Charts one below the other, as one file."""
    if len(charts) == 1:
        return standalone(charts[0])
    sizes = [_size(chart) for chart in charts]
    inside, top = [], 0.0
    for chart, (_, height) in zip(charts, sizes, strict=True):
        inside.append(str(chart).replace("<svg", f'<svg y="{top:g}" height="{height:g}"', 1))
        top += height
    width = max(width for width, _ in sizes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {top:g}">'
        f"<style>{STANDALONE_STYLE}</style>{''.join(inside)}</svg>"
    )


def _size(chart: Markup) -> tuple[float, float]:
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', str(chart))
    assert box, "a chart says how large it is"
    return float(box[1]), float(box[2])


def drawing(parts: Sequence[Markup], title: str, width: float = WIDTH, height: float = HEIGHT) -> Markup:
    """The parts as one SVG element."""
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, title, Markup("").join(parts)
    )


def label(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> Markup:
    """A text at a place, in the class `kind`."""
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}">{}</text>').format(x, y, anchor, kind, text)


def _y(value: float) -> float:
    return HEIGHT - BOTTOM - value / 100 * (HEIGHT - TOP - BOTTOM)


def _path(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _percent_grid() -> Markup:
    rows = []
    for value in (0, 25, 50, 75, 100):
        rows.append(
            Markup('<line class="{}" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>').format(
                "grid" if value else "axis", LEFT, WIDTH - RIGHT, y=_y(value)
            )
        )
        rows.append(label(LEFT - 6, _y(value) + 4, str(value), "end"))
    return Markup("").join(rows)


def _x_axis(axis: Axis) -> Markup:
    bottom = HEIGHT - BOTTOM
    parts = [Markup('<line class="axis" x1="{}" x2="{}" y1="{b}" y2="{b}"/>').format(LEFT, WIDTH - RIGHT, b=bottom)]
    for value, text in axis.ticks:
        at_the_edge = axis.at(value) + 4 * len(text) > WIDTH
        parts.append(
            label(WIDTH - 2 if at_the_edge else axis.at(value), bottom + 16, text, "end" if at_the_edge else "middle")
        )
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, axis.label, "middle"))
    return Markup("").join(parts)


def _y_label(text: str) -> Markup:
    return Markup('<text transform="translate(11 {:.0f}) rotate(-90)" text-anchor="middle">{}</text>').format(
        (TOP + HEIGHT - BOTTOM) / 2, text
    )


def _line(series: Series, axis: Axis, kind: str) -> Markup:
    places = [(axis.at(point.x), point) for point in series.points]
    path = _path([(x, _y(point.y)) for x, point in places])
    parts = [Markup('<polyline class="line {}" points="{}"/>').format(kind, path)] if places else []
    for one in series.ranges:
        text = f"{series.name}: between {one.low:.1f} and {one.high:.1f} %"
        bar = '<line class="range {}" x1="{x:.1f}" x2="{x:.1f}" y1="{:.1f}" y2="{:.1f}"><title>{}</title></line>'
        parts.append(Markup(bar).format(kind, _y(one.low), _y(one.high), text, x=axis.at(one.x)))
    for x, point in places:
        text = f"{series.name}: {point.y:.2f} %"
        if point.low is not None and point.high is not None:
            text += f" ({point.low:.1f} to {point.high:.1f})"
            parts.append(
                Markup('<line class="whisker {}" x1="{x:.1f}" x2="{x:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format(
                    kind, _y(point.low), _y(point.high), x=x
                )
            )
        parts.append(
            Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3.5"><title>{}</title></circle>').format(
                kind, x, _y(point.y), text
            )
        )
    return Markup("").join(parts)


def _names(series: Sequence[Series]) -> Markup:
    """The name of each line in its colour, side by side above the chart."""
    parts, x = [], float(LEFT)
    for place, one in enumerate(series):
        parts.append(Markup('<circle class="dot s{}" cx="{:.1f}" cy="12" r="4"/>').format(place % 4, x + 4))
        parts.append(label(x + 13, 16, one.name, "start", f"name s{place % 4}"))
        x += 13 + 7.5 * len(one.name) + 18
    return Markup("").join(parts)
