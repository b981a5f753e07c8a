"""The figures of the paper's items."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from openworld.planning.estimate_plot import FAINT, OURS, THEIRS


def draw_lines(lines: dict[str, Sequence[tuple[float, float]]], labels: tuple[str, str, str], path: Path) -> None:
    """Draw lines into a PNG file.

    Args:
        lines: the points (x, y) of each line, by its name.
        labels: the title, the x label and the y label.
        path: the file.
    """
    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    panel = figure.subplots()
    for (name, points), colour in zip(lines.items(), (OURS, THEIRS, FAINT, "black"), strict=False):
        marker = "o" if len(points) < 30 else None
        panel.plot(*zip(*points, strict=True), marker=marker, color=colour, label=name)
    title, x_label, y_label = labels
    panel.set(title=title, xlabel=x_label, ylabel=y_label)
    panel.legend(frameon=False, fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
