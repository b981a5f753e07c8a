"""The plot of an estimated number of classes, as a PNG file."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openworld.ops.class_count import Estimate, Rates

OURS, THEIRS, FAINT = "#1f6fb2", "#d1602e", "#8a8a8a"


def draw_class_count(estimate: Estimate, path: Path) -> None:
    """Plot the curve of k-means over k and the estimate; for `neighbours`, also the two lines that cross there."""
    has_rates = estimate.estimator == "neighbours"
    figure = Figure(figsize=(11 if has_rates else 6, 4.2), layout="constrained")
    panels = figure.subplots(1, 2 if has_rates else 1, squeeze=False)[0]
    if has_rates:
        _draw_rates(panels[0], estimate)
    _draw_curve(panels[-1], estimate)
    for panel in panels:
        _mark_estimate(panel, estimate)
        panel.set_xlabel("number of classes k")
        panel.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(estimate.text(), fontsize=12)
    figure.savefig(path, dpi=110)


def _draw_rates(panel: Axes, estimate: Estimate) -> None:
    fields = ("same", "other", "num_seen", "num_labelled", "num_samples")
    rates = Rates(**{name: estimate.details[name] for name in fields})
    ends = [estimate.num_seen, max(2 * estimate.num_classes - estimate.num_seen, estimate.num_seen + 2)]
    panel.plot(ends, [100 * rates.by_size(k) for k in ends], color=OURS, label="expected for k classes of equal size")
    near = [100 * rates.by_neighbours(k) for k in ends]
    panel.plot(ends, near, color=THEIRS, label="measured among nearest neighbours")
    panel.set_ylabel("labelled proportion of a seen class (%)")
    panel.set_title("the estimate: where the lines cross", fontsize=10)
    panel.legend(frameon=False, fontsize=9)


def _draw_curve(panel: Axes, estimate: Estimate) -> None:
    counts = [score.k for score in estimate.curve]
    panel.plot(counts, [score.reassigned for score in estimate.curve], color=THEIRS, label="with reassignment")
    panel.plot(counts, [score.accuracy for score in estimate.curve], color=FAINT, label="without reassignment")
    panel.set_ylabel("labelled samples matched (%)")
    panel.set_title("k-means, as in the paper", fontsize=10)
    panel.legend(frameon=False, fontsize=9)


def _mark_estimate(panel: Axes, estimate: Estimate) -> None:
    panel.axvline(estimate.num_classes, color="black", linewidth=1, linestyle=":")
    if estimate.high is not None:
        panel.axvspan(estimate.low, estimate.high, color="black", alpha=0.07, linewidth=0)
    panel.spines[["top", "right"]].set_visible(False)
