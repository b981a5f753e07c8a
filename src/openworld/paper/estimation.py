"""The item of the paper about the estimated number of classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openworld.core.config import ESTIMATORS
from openworld.core.errors import CannotEstimate, UserError
from openworld.paper.items import SMALL_DATA
from openworld.paper.records import recorded
from openworld.paper.tables import Cell, Count, Table
from openworld.results.plots import Lines

PRINTED = {  # The true number of classes, and the paper's estimates with and without reassignment.
    "cifar10": (10, 10, 10),
    "cifar100": (100, 117, 87),
    "imagenet100": (100, 139, 84),
    "tiny-imagenet": (200, 192, 132),
    SMALL_DATA: (10, None, None),
}
HEADER = ("", "truth", "paper", "plain", "ours", "its way", "its plain")
NOTES = (
    "truth: the true number of classes. paper: the estimate as printed, by k-means on SimCLR features. plain: the "
    "same without reassignment.",
    "ours: the estimator `neighbours` on our SimCLR features, with its interval. its way, its plain: our runs of "
    "the paper's two estimators on the same features, with the interval of the ten best k.",
    "-: not printed in the paper, or not recorded. refused: the estimator reported that it cannot estimate the "
    "number of classes from these features.",
)
Result = dict[str, Any]
"""`estimates` by estimator, and the `curve` of k-means over k."""


def estimation(is_small: bool = False, new: Mapping[str, Result] | None = None) -> Table:
    """Return the printed estimates, our recorded ones, and those of new runs in rows of their own."""
    rows, found = [], {}
    for name in [SMALL_DATA] if is_small else PRINTED:
        found[name] = recorded(f"estimation-{name}")
        rows.append((name, *PRINTED[name], *cells_of(found[name])))
        if new and name in new:
            rows.append((f"{name}: this run", *PRINTED[name], *cells_of(new[name])))
    drawn = SMALL_DATA if is_small else "cifar100"
    curve = ((new or {}).get(drawn) or found[drawn] or {"curve": []})["curve"]
    lines = {
        "with reassignment": [(score["k"], score["reassigned"]) for score in curve],
        "without": [(score["k"], score["accuracy"]) for score in curve],
    }
    figure = Lines(lines, f"k, {drawn}", "labelled samples matched (%)") if curve else None
    return Table("Estimated number of classes", HEADER, rows, NOTES, figure)


def names_to_run(row: str, is_small: bool) -> list[str]:
    """Return the data sets whose classes to count: that of a row, or all."""
    names = [SMALL_DATA] if is_small else [name for name in PRINTED if name != SMALL_DATA]
    if row and row not in names:
        scale = " at small scale" if is_small else ""
        raise UserError(f"--run {row}: no such row of estimation{scale} (choose from {', '.join(names)})")
    return [row] if row else names


def estimate_again(name: str, out: Path, runtime: Any, seed: int, steps: int | None) -> Result:
    """Estimate the number of classes with every estimator, on the same features."""
    from openworld.planning.estimate import estimate_classes

    folder = out / f"estimation-{name}-seed{seed}{f'-{steps}-steps' if steps else ''}"
    requested = {"data": name, "seed": seed, **({"start_steps": steps} if steps else {})}
    estimates, curve = {}, []
    for estimator in ESTIMATORS:
        try:
            found = estimate_classes(requested, runtime, folder, estimator).to_json()
        except CannotEstimate as error:
            estimates[estimator] = {"refused": str(error)}
            continue
        estimates[estimator] = {key: found[key] for key in ("num_classes", "low", "high")}
        curve = found["curve"] if estimator != "neighbours" else curve
    return {"estimates": estimates, "curve": curve}


def cells_of(result: Result | None) -> tuple[Cell, ...]:
    """Return the cells of the estimates of a result."""
    estimates = (result or {"estimates": {}})["estimates"]
    return tuple(count_of(estimates.get(estimator)) for estimator in ESTIMATORS)


def count_of(estimate: dict[str, Any] | None) -> Cell:
    """Return the cell of a recorded estimate; None if there is no record."""
    if estimate is None:
        return None
    if "refused" in estimate:
        return "refused"
    return Count(estimate["num_classes"], estimate["low"], estimate["high"])
