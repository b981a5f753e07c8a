"""The items of the paper about the number of classes: the estimates, and the cost of a wrong number."""

from collections.abc import Iterator
from typing import Any

from openworld.paper.records import recorded
from openworld.paper.tables import PARTS, Cell, Count, Score, Table

ESTIMATION = {  # The true number of classes, and the paper's estimates with and without reassignment.
    "cifar10": (10, 10, 10),
    "cifar100": (100, 117, 87),
    "imagenet100": (100, 139, 84),
    "tiny-imagenet": (200, 192, 132),
    "digits": (10, None, None),
}


def estimation() -> Table:
    """Tables "Estimation of the number of novel classes", with and without reassignment."""

    def row(name: str) -> tuple[Cell, ...]:
        ours = (recorded(f"estimation-{name}") or {"estimates": {}})["estimates"]
        estimators = ("neighbours", "paper", "paper-plain")
        return name, *ESTIMATION[name], *(count_of(ours.get(estimator)) for estimator in estimators)

    header = ("", "truth", "paper", "plain", "ours", "its way", "its plain")
    notes = (
        "truth: the true number of classes. paper: the estimate as printed, by k-means on SimCLR features. plain: the "
        "same without reassignment.",
        "ours: the estimator `neighbours` on our SimCLR features, with its interval. its way, its plain: our runs of "
        "the paper's two estimators on the same features, with the interval of the ten best k.",
        "-: not printed in the paper, or not recorded. refused: the estimator reported that it cannot estimate the "
        "number of classes from these features.",
    )
    curve = (recorded("estimation-cifar100") or {"curve": []})["curve"]
    lines = {
        "with reassignment": [(score["k"], score["reassigned"]) for score in curve],
        "without": [(score["k"], score["accuracy"]) for score in curve],
    }
    axes = "k, CIFAR-100", "labelled samples matched (%)"
    return Table("Estimated number of classes", header, list(map(row, ESTIMATION)), notes, lines, axes)


def count_of(estimate: dict[str, Any] | None) -> Cell:
    """Return the cell of a recorded estimate; None if there is no record."""
    if estimate is None:
        return None
    if "refused" in estimate:
        return "refused"
    return Count(estimate["num_classes"], estimate["low"], estimate["high"])


def sensitivity() -> Table:
    """Figure "Accuracy as a function of class estimation error", on CIFAR-100."""
    result = recorded("sensitivity-cifar100")
    runs = sorted(finished(result or {"trials": []}), key=lambda summary: summary["num_classes"])
    rows = [(run["num_classes"], run["num_classes"] - 100, *(Score(run[part], None) for part in PARTS)) for run in runs]
    lines = {"ours": [(run["num_classes"] - 100.0, run["all"]) for run in runs], "paper": [(0.0, 60.3), (17.0, 54.8)]}
    flags = " ".join(result["trials"][0]["flags"]) if result else "nothing recorded yet"
    notes = (
        f"ours: {flags}. One seed and a fiftieth of the paper's steps, so only the shape of the curve is meaningful.",
        "paper: All is 60.3 with 100 classes, and 54.8 with its estimate of 117. Its figure prints no other numbers.",
    )
    header = ("classes assumed", "error, %", "Seen", "Novel", "All")
    axes = "error of the number of classes (%)", "All (%)"
    return Table("Accuracy with a wrong number of classes, CIFAR-100", header, rows, notes, lines, axes)


def finished(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the summaries of the trials that finished."""
    return (trial["summary"] for trial in result["trials"] if trial["summary"])
