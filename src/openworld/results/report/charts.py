"""Charts as inline SVG. Their colours are CSS variables, so charts follow the light or dark mode of the page."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from openworld.results.report.confusion import Confusion
from openworld.results.report.markup import Html, join, tag

DISTINCT_COLOURS = 10
"""Number of colours in style.css that everyone can distinguish, colour-blind readers included."""
GOLDEN_ANGLE = 137.508
"""Degrees between the hues of two consecutive generated colours."""


def class_colour(number: int) -> str:
    """Return the CSS colour of a class: one of the distinct colours, then a generated hue."""
    hue = f"{number * GOLDEN_ANGLE % 360:.0f}"
    return f"var(--k{number})" if number < DISTINCT_COLOURS else f"light-dark(hsl({hue} 65% 40%), hsl({hue} 60% 66%))"


class Line(NamedTuple):
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    is_dashed: bool = False


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers that cover a range.

    >>> ticks(0, 98, 5)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    if not high > low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def short(value: float) -> str:
    """Return a number as a short text for an axis.

    >>> short(1200), short(0.05), short(0.00002), short(20.0)
    ('1.2k', '0.05', '2e-05', '20')
    """
    return f"{value / 1000:.4g}k" if abs(value) >= 1000 else f"{value:.4g}"


def line_chart(
    title: str,
    lines: Sequence[Line],
    x_name: str,
    band: tuple[float, float] | None = None,
    mark: float | None = None,
) -> Html | None:
    """Draw lines over a common x axis. Each point has its value as a tooltip. Return None if there are no points.

    Args:
        title: title of the chart.
        lines: the lines. Points that are None or not finite are left out.
        x_name: name of the x axis.
        band: a range of x to shade.
        mark: an x at which to draw a vertical line.
    """
    lines = [
        line._replace(points=[p for p in line.points if p[1] is not None and math.isfinite(p[1])]) for line in lines
    ]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    width, height, left, right, top, bottom = 380, 210, 44, 12, 10, 34
    xs, ys = zip(*(point for line in lines for point in line.points), strict=True)
    y_ticks, x_ticks = ticks(min(ys), max(ys), 4), ticks(min(xs), max(xs), 5)
    x_low, x_high = (min(xs), max(xs)) if max(xs) > min(xs) else (x_ticks[0], x_ticks[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low)
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return left + across * (width - left - right), height - bottom - up * (height - top - bottom)

    parts = []
    if band:
        (x1, _), (x2, _) = (place(min(max(x, x_low), x_high), y_ticks[0]) for x in band)
        parts.append(tag("rect", class_="band", x=x1, y=top, width=max(x2 - x1, 1), height=height - top - bottom))
    if mark is not None:
        at, _ = place(min(max(mark, x_low), x_high), y_ticks[0])
        parts.append(
            tag("line", tag("title", f"{x_name} {mark:g}"), class_="mark", x1=at, x2=at, y1=top, y2=height - bottom)
        )
    for y in y_ticks:
        _, at = place(x_low, y)
        parts.append(tag("line", class_="grid", x1=left, x2=width - right, y1=f"{at:.1f}", y2=f"{at:.1f}"))
        parts.append(tag("text", short(y), x=left - 6, y=f"{at + 3.5:.1f}", text_anchor="end"))
    for x in (x for x in x_ticks if x_low <= x <= x_high):
        at, _ = place(x, y_ticks[0])
        parts.append(tag("text", short(x), x=f"{at:.1f}", y=height - bottom + 15, text_anchor="middle"))
    parts.append(tag("text", x_name, x=(left + width - right) / 2, y=height - 3, text_anchor="middle", class_="axis"))
    for line in lines:
        placed = [place(*point) for point in line.points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        style = f"stroke:{line.colour}"
        parts.append(tag("path", d=path, class_="line dashed" if line.is_dashed else "line", style=style))
        for (x, y), point in zip(placed, line.points, strict=True):
            tooltip = tag("title", f"{line.name}, {x_name} {point[0]:,.10g}: {point[1]:,.4g}")
            parts.append(tag("circle", tooltip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.2, style=f"fill:{line.colour}"))
    chart = tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=f"{title} over {x_name}")
    return tag("figure", tag("figcaption", title), legend(lines) if len(lines) > 1 else None, chart, class_="chart")


def legend(lines: Sequence[Line]) -> Html:
    """Return the names and colours of lines."""
    entries = [
        tag("span", tag("i", class_="key dashed" if line.is_dashed else "key", style=f"color:{line.colour}"), line.name)
        for line in lines
    ]
    return tag("p", *entries, class_="legend")


def proportion_bars(names: Sequence[str], assumed: Sequence[float], predicted: Sequence[float]) -> Html:
    """Draw two bars for each class: its assumed proportion and its predicted proportion."""
    row, left, width = 26, 130, 560
    most = max(*assumed, *predicted, 1e-9)
    parts = []
    for number, (name, before, after) in enumerate(zip(names, assumed, predicted, strict=True)):
        top = number * row
        tooltip = tag("title", f"{name}: assumed {100 * before:.1f} %, predicted {100 * after:.1f} %")
        bars = [
            tag(
                "rect",
                x=left,
                y=top + y,
                width=f"{(width - left - 52) * proportion / most:.1f}",
                height=8,
                rx=1.5,
                class_=kind,
            )
            for y, proportion, kind in ((3, before, "assumed"), (12, after, "predicted"))
        ]
        label = tag("text", clipped(name, 18), x=left - 8, y=top + 15, text_anchor="end")
        end = left + (width - left - 52) * max(before, after) / most + 6
        value = tag("text", f"{100 * after:.1f} %", x=f"{end:.1f}", y=top + 15)
        parts.append(tag("g", tooltip, label, *bars, value))
    size = f"0 0 {width} {row * len(names) + 4}"
    label = "class proportions, assumed and predicted"
    return tag("svg", *parts, viewBox=size, role="img", aria_label=label, class_="bars")


def heat_map(confusion: Confusion, true_names: Sequence[str], names: Sequence[str]) -> Html:
    """Draw the confusion matrix: rows are true classes, columns are predicted classes in the order of their matches.

    The script of the page makes rows, columns and cells selectable.
    """
    shown, columns = confusion.counts[:, confusion.columns], confusion.columns
    num_true, num_columns = shown.shape
    cell = max(12, min(46, 520 // max(shown.shape)))
    left, top, font = 120, 112, min(13, cell - 1)
    proportions = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    parts = []
    for row, column in zip(*(axis.tolist() for axis in shown.nonzero()), strict=True):
        count, proportion, at = int(shown[row, column]), float(proportions[row, column]), columns[column]
        cell_is = f"true class {true_names[row]}, predicted as {names[at]}"
        tooltip = tag("title", f"{cell_is}: {count} ({100 * proportion:.1f} % of the true class)")
        x, y = left + column * cell, top + row * cell
        box = tag(
            "rect",
            x=x + 1,
            y=y + 1,
            width=cell - 2,
            height=cell - 2,
            style=f"fill-opacity:{0.06 + 0.94 * proportion:.2f}",
        )
        kind = "over" if proportion > 0.5 else None
        number = tag("text", count, x=x + cell / 2, y=y + cell / 2 + 4, class_=kind) if cell > 20 else None
        parts.append(tag("g", tooltip, box, number, class_="cell", data_row=row, data_column=at))
    for row in range(min(num_true, num_columns)):  # Frames mark correct predictions, also if the cell is empty.
        if confusion.matches.get(columns[row]) == row:
            x, y = left + row * cell + 0.5, top + row * cell + 0.5
            parts.append(tag("rect", x=x, y=y, width=cell - 1, height=cell - 1, class_="match"))

    def label(name: str, kind: str, number: int, transform: str, anchor: str, is_new: bool) -> Html:
        text = tag("text", clipped(name, 16), transform=transform, text_anchor=anchor, style=f"font-size:{font}px")
        shown_as = {"role": "button", "tabindex": 0, "class_": "label new" if is_new else "label"}
        tooltip = tag("title", f"{'true' if kind == 'row' else 'predicted'} class {name}")
        return tag("g", tooltip, text, **shown_as, **{f"data_{kind}": number})

    for row, name in enumerate(true_names):
        where = f"translate({left - 7} {top + (row + 0.5) * cell + font / 3:.1f})"
        parts.append(label(name, "row", row, where, "end", row >= confusion.num_seen))
    for place, at in enumerate(columns):
        where = f"translate({left + (place + 0.5) * cell + font / 3:.1f} {top - 7}) rotate({-60 if cell > 20 else -90})"
        parts.append(label(names[at], "column", at, where, "start", at >= confusion.num_seen))
    border = tag("rect", x=left, y=top, width=cell * num_columns, height=cell * num_true, class_="frame")
    if confusion.num_seen < min(num_true, num_columns):  # Lines separate known from discovered classes.
        x, y = left + confusion.num_seen * cell, top + confusion.num_seen * cell
        end_x, end_y = left + num_columns * cell, top + num_true * cell
        border = join(border, tag("path", d=f"M{left} {y}H{end_x}M{x} {top}V{end_y}", class_="frame"))
    width, height = left + num_columns * cell + 60, top + num_true * cell + 4
    size = {"viewBox": f"0 0 {width} {height}", "style": f"width:{width}px"}
    return tag("svg", border, *parts, **size, class_="confusion", role="group", aria_label="confusion matrix")


def scatter(points: np.ndarray, colours: Sequence[str], is_new: Sequence[bool]) -> Html:
    """Draw the map of the features. The script of the page shows the image of a point.

    Args:
        points: (N, 2) places in the unit square.
        colours: colour of each point.
        is_new: whether each point is predicted as a discovered class. These points are square, the others round.
    """

    def place(fraction: float, size: int) -> str:
        return f"{20 + fraction * (size - 40):.1f}"

    marks = [
        tag("path", d=f"M{place(x, 800)} {place(y, 600)}h.01", class_="new" if new else None, style=f"stroke:{colour}")
        for (x, y), colour, new in zip(points.tolist(), colours, is_new, strict=True)
    ]
    label = "map of the features; use the arrow keys to go from image to image"
    return tag("svg", *marks, viewBox="0 0 800 600", id="feature-map", tabindex=0, role="application", aria_label=label)


def clipped(text: str, most: int) -> str:
    """Return a text, shortened to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
