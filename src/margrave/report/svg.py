"""Figures as SVG: lines, steps, dots, cells and bars.

The unit is about one pixel of a phone (`WIDTH` is the width of a figure). Colours come from the
classes of the page's style sheet, which also covers dark mode and print. The size of a figure is
bounded, whatever the data: long lines are thinned out, many dots become a grid of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margrave.report.axis import Axis, Floats
from margrave.report.page import Markup, short, tag

WIDTH, HEIGHT = 400, 250
COLOURS = 8
_RIGHT, _TOP, _BOTTOM = 14, 10, 42
_MOST_POINTS = 160  # of a line
_MOST_DOTS = 600
_CELLS = 36  # per side of the grid that replaces many dots
_LETTER = 7.0  # approximate width of a character


@dataclass(frozen=True)
class Line:
    """A line, or the steps of a histogram (`x` are then the edges)."""

    name: str
    x: ArrayLike
    y: ArrayLike
    colour: int = 1
    thin: bool = False


def figure(
    title: str, picture: Markup, names: Sequence[tuple[str, int]] = (), wide: bool = False
) -> Markup:
    """A figure with its title and legend."""
    shown = [tag("span", tag("i", class_=f"t{colour}"), short(name, 60)) for name, colour in names]
    legend = tag("span", *shown, class_="legend") if shown else None
    caption = tag("figcaption", tag("b", title), legend)
    return tag("figure", caption, picture, class_="wide" if wide else None)


def lines(
    title: str,
    series: Sequence[Line],
    x: Axis,
    y: Axis,
    marks: Sequence[float] = (),
    diagonal: bool = False,
) -> Markup:
    """Draw lines, with dots if they have few points; `marks` are dashed horizontal lines."""
    plot = _Plot(x, y)
    drawn = [plot.rule(mark, across=True) for mark in marks]
    if diagonal:
        drawn.append(plot.path([x.low, x.high], [y.low, y.high], "mark"))
    for line in series:
        xs, ys = np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)
        seen = np.isfinite(xs) & np.isfinite(ys) & ((ys > 0) | (not y.log))
        xs, ys = xs[seen], ys[seen]
        kept = _spread(len(xs), _MOST_POINTS)
        made = [plot.path(xs[kept], ys[kept], "line thin" if line.thin else "line")]
        if len(kept) <= 30 and not line.thin:
            made += plot.circles(xs[kept], ys[kept], 3.0)
        drawn.append(tag("g", *made, class_=f"t{line.colour}"))
    return _framed(title, plot, drawn)


def steps(
    title: str,
    series: Sequence[Line],
    x: Axis,
    y_title: str,
    marks: Sequence[float] = (),
    wrong_below: float | None = None,
) -> Markup:
    """Draw histograms of heights `y` between edges `x`; `marks` are dashed vertical lines."""
    y = Axis.over(y_title, np.concatenate([line.y for line in series]), also=[0.0])
    plot = _Plot(x, y)
    drawn: list[Markup] = []
    if wrong_below is not None and x.low < wrong_below:
        width = float(plot.x(wrong_below)) - plot.left
        drawn.append(
            tag(
                "rect", x=_at(plot.left), y=_TOP, width=_at(width), height=plot.tall, class_="wrong"
            )
        )
    for line in series:
        xs = np.repeat(np.asarray(line.x, dtype=np.float64), 2)
        ys = np.concatenate([[0.0], np.repeat(line.y, 2), [0.0]])
        drawn.append(tag("g", plot.path(xs, ys, "area"), class_=f"t{line.colour}"))
    drawn += [plot.rule(mark, across=False) for mark in marks if x.low < mark < x.high]
    return _framed(title, plot, drawn)


def dots(
    title: str,
    x_values: ArrayLike,
    y_values: ArrayLike,
    x: Axis,
    y: Axis,
    diagonal: bool = False,
    marks: Sequence[float] = (),
) -> Markup:
    """Draw points, or if there are many a grid whose cells are shaded by their number."""
    plot = _Plot(x, y)
    xs, ys = np.asarray(x_values, dtype=np.float64), np.asarray(y_values, dtype=np.float64)
    seen = np.isfinite(xs) & np.isfinite(ys)
    xs, ys = xs[seen], ys[seen]
    drawn = [plot.rule(mark, across=True) for mark in marks]
    made = plot.circles(xs, ys, 2.5) if len(xs) <= _MOST_DOTS else plot.grid_of(xs, ys)
    drawn.append(tag("g", *made, class_="t1"))
    if diagonal:
        low, high = max(x.low, y.low), min(x.high, y.high)
        drawn.append(plot.path([low, high], [low, high], "mark"))
    return _framed(title, plot, drawn)


def cells(
    title: str,
    shades: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    row_title: str,
    column_title: str,
    texts: Sequence[Sequence[str]] | None = None,
    best: tuple[int, int] | None = None,
) -> Markup:
    """Draw a matrix of shades between 0 and 1; NaN is an empty cell.

    Names of rows and columns are left out where they would overlap.
    """
    shades = np.asarray(shades, dtype=np.float64)
    n, m = shades.shape
    longest = max((len(short(name, 12)) for name in rows), default=1)
    left = 26 + min(12, longest) * _LETTER
    broadest = max((len(short(str(name), 12)) for name in columns), default=1) * _LETTER + 6
    wide = (WIDTH - left - 8) / m
    high = min(wide, 60.0, max(14.0, 260.0 / n)) if n <= 30 else min(wide, 300.0 / n)
    slanted = broadest > wide  # names of columns that would overlap
    top, bottom = 6.0, 44.0 + (0.5 * broadest if slanted else 0.0)
    drawn: list[Markup] = []
    for i in range(n):
        for j in range(m):
            place = {"x": _at(left + j * wide), "y": _at(top + i * high)}
            size = {"width": _at(wide), "height": _at(high)}
            shade = shades[i, j]
            if np.isnan(shade):
                drawn.append(tag("rect", **place, **size, class_="none"))
            elif shade > 0.0:
                opacity = round(0.06 + 0.94 * min(1.0, float(shade)), 2)
                drawn.append(tag("rect", **place, **size, class_="cell", fill_opacity=opacity))
            if texts is not None and texts[i][j]:
                dark = "on" if not np.isnan(shade) and shade > 0.5 else "ink"
                fits = len(texts[i][j]) * _LETTER < wide
                drawn.append(
                    _text(
                        left + (j + 0.5) * wide,
                        top + (i + 0.5) * high + 4,
                        texts[i][j],
                        f"middle {dark}" + ("" if fits else " small"),
                    )
                )
    if best is not None:
        i, j = best
        drawn.append(
            tag(
                "rect",
                x=_at(left + j * wide),
                y=_at(top + i * high),
                width=_at(wide),
                height=_at(high),
                class_="best",
            )
        )
    for i in range(0, n, max(1, math.ceil(13.0 / high))):
        drawn.append(_text(left - 5, top + (i + 0.5) * high + 4, short(rows[i], 12), "end"))
    floor = top + n * high
    for j in range(0, m, max(1, math.ceil(13.0 / wide))):
        x, y, name = left + (j + 0.5) * wide, floor + 16, short(columns[j], 12)
        drawn.append(_slanted(x + 4, y - 4, name) if slanted else _text(x, y, name, "middle"))
    drawn.append(_text(left + m * wide / 2, floor + bottom - 8, column_title, "middle"))
    drawn.append(_turned(12, top + n * high / 2, row_title))
    return _picture(title, floor + bottom, [tag("g", *drawn, class_="t1")])


def bars(
    title: str,
    names: Sequence[str],
    values: ArrayLike,
    x_title: str,
    spread: ArrayLike | None = None,
) -> Markup:
    """Draw a horizontal bar for each value, or with `spread` a dot with error bars."""
    values = np.asarray(values, dtype=np.float64)
    around = np.zeros(len(values)) if spread is None else np.asarray(spread, dtype=np.float64)
    x = Axis.over(x_title, [values - around, values + around], also=[0.0])
    longest = max((len(short(name, 18)) for name in names), default=1)
    left, tall = 10 + longest * _LETTER, 20.0
    wide, floor = WIDTH - left - _RIGHT, 6 + tall * len(values)

    def across(value: float) -> float:
        return left + wide * float(x.at(value))

    drawn: list[Markup] = []
    for tick, text in x.ticks():
        drawn.append(_line(across(tick), 6, across(tick), floor, "grid"))
        drawn.append(_text(across(tick), floor + 16, text, "middle"))
    for i, (value, width) in enumerate(zip(values, around, strict=True)):
        y = 6 + tall * (i + 0.5)
        drawn.append(_text(left - 5, y + 4, short(names[i], 18), "end"))
        a, b = sorted([across(0.0), across(value)])
        colour = "t1" if value >= 0.0 else "t2"
        if spread is None:
            drawn.append(
                tag(
                    "rect",
                    x=_at(a),
                    y=_at(y - 6),
                    width=_at(max(b - a, 0.5)),
                    height=12,
                    class_=f"solid {colour}",
                )
            )
            continue
        drawn.append(
            tag(
                "g",
                _line(across(value - width), y, across(value + width), y, "whisker"),
                tag("circle", cx=_at(across(value)), cy=_at(y), r=4, class_="solid"),
                class_=colour,
            )
        )
    drawn.append(_line(across(0.0), 6, across(0.0), floor, "axis"))
    drawn.append(_text(left + wide / 2, floor + 36, x_title, "middle"))
    return _picture(title, floor + 44, drawn)


class _Plot:
    """The rectangle that two axes span."""

    def __init__(self, x: Axis, y: Axis) -> None:
        self.axes = x, y
        self.left = 30 + _LETTER * max((len(text) for _, text in y.ticks()), default=1)
        self.wide, self.tall = WIDTH - self.left - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(self, values: ArrayLike) -> Floats:
        return self.left + self.wide * self.axes[0].at(values)

    def y(self, values: ArrayLike) -> Floats:
        return _TOP + self.tall * (1.0 - self.axes[1].at(values))

    def path(self, xs: ArrayLike, ys: ArrayLike, kind: str) -> Markup:
        points = [f"{_at(a)} {_at(b)}" for a, b in zip(self.x(xs), self.y(ys), strict=True)]
        return tag("path", d="M" + "L".join(points) if points else None, class_=kind, fill="none")

    def circles(self, xs: ArrayLike, ys: ArrayLike, r: float) -> list[Markup]:
        return [
            tag("circle", cx=_at(a), cy=_at(b), r=r, class_="dot")
            for a, b in zip(self.x(xs), self.y(ys), strict=True)
        ]

    def grid_of(self, xs: Floats, ys: Floats) -> list[Markup]:
        sides = [
            np.minimum((_CELLS * axis.at(v)).astype(int), _CELLS - 1)
            for axis, v in zip(self.axes, (xs, ys), strict=True)
        ]
        counts = np.zeros((_CELLS, _CELLS))
        np.add.at(counts, tuple(sides), 1.0)
        shades = np.sqrt(counts / counts.max())
        wide, tall = self.wide / _CELLS, self.tall / _CELLS
        return [
            tag(
                "rect",
                x=_at(self.left + i * wide),
                y=_at(_TOP + self.tall - (j + 1) * tall),
                width=_at(wide),
                height=_at(tall),
                class_="cell",
                fill_opacity=round(0.1 + 0.9 * float(shades[i, j]), 2),
            )
            for i, j in zip(*np.nonzero(counts), strict=True)
        ]

    def rule(self, value: float, across: bool) -> Markup:
        if across:
            y = float(self.y(value))
            return _line(self.left, y, self.left + self.wide, y, "mark")
        x = float(self.x(value))
        return _line(x, _TOP, x, _TOP + self.tall, "mark")


def _framed(title: str, plot: _Plot, drawn: Sequence[Markup]) -> Markup:
    """A plot with grid, axes and labels."""
    x, y = plot.axes
    right, floor = plot.left + plot.wide, _TOP + plot.tall
    frame: list[Markup] = []
    names: list[Markup] = []
    for value, text in y.ticks():
        at = float(plot.y(value))
        frame.append(_line(plot.left, at, right, at, "grid"))
        names.append(_text(plot.left - 6, at + 4, text, "end"))
    for value, text in x.ticks():
        names.append(_text(float(plot.x(value)), floor + 17, text, "middle"))
    names.append(_text(plot.left + plot.wide / 2, floor + 37, x.title, "middle"))
    names.append(_turned(12, _TOP + plot.tall / 2, y.title))
    ground = _line(plot.left, floor, right, floor, "axis")
    return _picture(title, HEIGHT, [*frame, *drawn, ground, *names])


def _picture(title: str, height: float, drawn: Sequence[Markup]) -> Markup:
    box = f"0 0 {WIDTH} {_at(height)}"
    return tag("svg", tag("title", title), *drawn, viewBox=box, role="img")


def _text(x: float, y: float, text: str, kind: str) -> Markup:
    return tag("text", text, x=_at(x), y=_at(y), class_=kind)


def _slanted(x: float, y: float, text: str) -> Markup:
    turn = f"rotate(-30 {_at(x)} {_at(y)})"
    return tag("text", text, x=_at(x), y=_at(y), class_="end", transform=turn)


def _turned(x: float, y: float, text: str) -> Markup:
    turn = f"rotate(-90 {_at(x)} {_at(y)})"
    return tag("text", text, x=_at(x), y=_at(y), class_="middle", transform=turn)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=_at(x1), y1=_at(y1), x2=_at(x2), y2=_at(y2), class_=kind)


def _at(value: float) -> str:
    """A coordinate, which must be finite, or browsers would not show the figure."""
    if not math.isfinite(value):
        raise ValueError("a coordinate of a figure is not finite")
    return f"{value:.1f}".removesuffix(".0")


def _spread(n: int, most: int) -> NDArray[np.intp]:
    """At most `most` of n indices, evenly spaced, including the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))
