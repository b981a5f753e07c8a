"""Figures about several runs, each as a PNG and an SVG file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openworld.results.scores import Score

COLOURS = ("#1f6fb2", "#d1602e", "#3a8f4d", "#8a5fb0", "#8a8a8a", "#c2a000", "#2fa5a5", "black")
FEW_POINTS = 30
"""A line with fewer points than this has a marker at each."""
Line = Sequence[tuple[float, float | Score]]


@dataclass(frozen=True)
class Lines:
    """A figure of lines. The points of a line are (x, y)."""

    lines: Mapping[str, Line]
    x_label: str
    y_label: str

    def draw(self, panel: Axes) -> None:
        for number, (name, points) in enumerate(self.lines.items()):
            x, y = zip(*points, strict=True)
            scores = [value if isinstance(value, Score) else Score(value, None) for value in y]
            panel.errorbar(
                x,
                [score.mean for score in scores],
                [score.std or 0 for score in scores] if any(score.std for score in scores) else None,
                marker="o" if len(points) < FEW_POINTS else None,
                markersize=4,
                capsize=2,
                color=COLOURS[number % len(COLOURS)],
                label=name,
            )
        panel.set(xlabel=self.x_label, ylabel=self.y_label)
        panel.figure.legend(frameon=False, fontsize=9, ncols=2, loc="outside lower center")


@dataclass(frozen=True)
class Bars:
    """A figure of grouped bars: for each row a bar for each score."""

    rows: Mapping[str, Mapping[str, Score]]
    y_label: str

    def draw(self, panel: Axes) -> None:
        names = list(dict.fromkeys(name for scores in self.rows.values() for name in scores))
        height = 0.8 / len(names)
        for number, name in enumerate(names):
            offset = (number - (len(names) - 1) / 2) * height
            found = [(place + offset, row[name]) for place, row in enumerate(self.rows.values()) if name in row]
            places, scores = zip(*found, strict=True)
            spread, means = [score.std or 0 for score in scores], [score.mean for score in scores]
            panel.barh(places, means, height, xerr=spread, color=COLOURS[number % len(COLOURS)], label=name)
        panel.set(yticks=range(len(self.rows)), yticklabels=list(self.rows), xlabel=self.y_label)
        panel.invert_yaxis()
        panel.figure.legend(frameon=False, fontsize=9, ncols=len(names), loc="outside lower center")


@dataclass(frozen=True)
class Matrix:
    """A figure of a confusion matrix: rows are true classes, columns the predicted classes that are matched to them."""

    counts: np.ndarray
    num_seen: int

    def draw(self, panel: Axes) -> None:
        proportions = self.counts / self.counts.sum(axis=1, keepdims=True).clip(min=1)
        image = panel.imshow(100 * proportions, cmap="viridis", vmin=0, vmax=100, interpolation="nearest")
        for draw_line in (panel.axhline, panel.axvline):
            draw_line(self.num_seen - 0.5, color="white", linewidth=0.8, linestyle=":")
        panel.set(xlabel="predicted class (seen, then novel)", ylabel="true class (seen, then novel)")
        panel.figure.colorbar(image, ax=panel, label="% of the true class", shrink=0.8)


def draw(figure: Lines | Bars | Matrix, title: str, stem: Path) -> list[Path]:
    """Draw a figure into `stem`.png and `stem`.svg. Return both paths."""
    rows = len(figure.rows) if isinstance(figure, Bars) else 0
    canvas = Figure(figsize=(6.5, max(4.2, 1.5 + 0.45 * rows)), layout="constrained")
    panel = canvas.subplots()
    figure.draw(panel)
    canvas.suptitle(title, fontsize=11)
    panel.spines[["top", "right"]].set_visible(False)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    with matplotlib.rc_context({"svg.hashsalt": "openworld"}):  # the same figure gives the same file
        for path in paths:
            canvas.savefig(path, dpi=110, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {}))
    return paths
