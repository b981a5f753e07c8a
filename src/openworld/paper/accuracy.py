"""The table of an item about accuracies: the numbers that the paper prints, and our results."""

import statistics
from collections.abc import Sequence
from typing import Any

from openworld.paper.items import OWN, Item, Row, at_small_scale
from openworld.paper.matching import fitting, label_of, objections
from openworld.paper.records import SMALL, confusion_of, recorded, recorded_runs, score_of
from openworld.paper.tables import Cell, Difference, Table
from openworld.results.plots import Lines, Matrix
from openworld.results.report.confusion import Confusion
from openworld.results.scores import Score, over_seeds

NEW = ": this run"
"""What the label of a run that is not recorded ends with."""
PAPERS = "All, as printed"
"""Name of the line of the paper's numbers."""
NOTES = (
    "Seen, Novel, All: accuracy in %. A seen class has labelled images, a novel class has none.",
    "(paper): numbers as the paper prints them. ORCA's numbers are lenient (an output of a seen class may be matched "
    "to a novel class) and transductive (evaluated on the unlabelled training images). TRSSL's numbers and ours are "
    "neither.",
    "Other rows: our numbers, under the protocol trssl (strict), on the official test set, with the averaged weights "
    "of the last checkpoint; mean ± standard deviation over seeds. gap: our number minus TRSSL's as printed.",
    "Our rows have the name of their recipe (`openworld train --recipe`, docs/paper.md). A flag after the name is a "
    "setting that differs from the recipe of today.",
    "paper: our run of the method as printed. Where the text of the paper and the authors' code differ, it mostly "
    "follows the code. The printed length is 204,800 steps.",
    "fast, pretrained: not the method as printed. Both use another optimiser and no uncertainty temperatures. "
    "pretrained also starts from features learnt without labels from the same images (simclr), changes the loss, and "
    "on CIFAR-100 uses no hard labels (docs/paper.md).",
    "min, on: training time in minutes, and the device. The time includes training the simclr features and compiling. "
    "It does not include reading the data and computing the initial clusters.",
)
SMALL_NOTES = (
    "Small scale: the same experiment on scikit-learn's digits, with the recipe `digits` in fewer steps. It shows what "
    "a setting does, not how good it is on photos. Seen, Novel, All: accuracy on the test images in %, protocol trssl, "
    "mean ± standard deviation over seeds.",
)


def accuracy_table(
    name: str, item: Item, is_small: bool = False, new: Sequence[dict[str, Any]] = (), only: Sequence[Row] = ()
) -> Table:
    """Return the printed numbers, our recorded results, and the results of `new` runs in rows of their own.

    `only` selects rows of the item.
    """
    item, old = at_small_scale(item) if is_small else item, results_of(name, is_small)
    rows: list[tuple[Cell, ...]] = []
    for row in only or item.rows:
        ours, theirs = our_rows(item, row, old), our_rows(item, row, list(new), NEW)
        nothing = [(f"{row.name}, ours: not recorded", *[None] * (len(header_of(item)) - 1))]
        rows += [*printed_rows(item, row), *(ours or ([] if theirs else nothing)), *theirs]
    title = f"{name} at small scale: the same experiment on the digits" if is_small else item.title
    notes = (*SMALL_NOTES, *item.notes[:1]) if is_small else (*NOTES, *item.notes, small_note(name))
    return Table(title, header_of(item), rows, (*notes, *left_out(item, new)), figure_of(item, old, list(new)))


def results_of(name: str, is_small: bool = False) -> list[dict[str, Any]]:
    """Return the recorded results that an item may show. A trial for one item is not shown in others."""
    results = small_runs(name) if is_small else recorded_runs()
    return [result for result in results if result.get("item", name) == name]


def left_out(item: Item, new: Sequence[dict[str, Any]]) -> list[str]:
    """Return a note for each new run that no row of the item can show."""
    notes = []
    for result in new:
        against = [objections(result, item, row) for row in item.rows if row.data == result["dataset"]]
        if against and all(against):
            notes.append(f"A run is not in the table: {'; '.join(min(against, key=len))}.")
    return notes


def header_of(item: Item) -> tuple[str, ...]:
    return "", *item.columns.values(), "gap", "seeds", "min", "on"


def small_note(name: str) -> str:
    """Return how to see and to run the item at small scale."""
    is_recorded = "recorded" if small_runs(name) else "not recorded yet"
    return f"At small scale ({is_recorded}): openworld paper {name} --scale small. Add --run to train it again."


def printed_rows(item: Item, row: Row) -> list[tuple[Cell, ...]]:
    """Return the printed numbers of a row: first the other methods, last the paper's own method."""
    return [
        (f"{row.name}, {method} (paper)", *(None if score is None else Score(score, None) for score in scores))
        + (None,) * 4
        for method, scores in row.printed.items()
    ]


def our_rows(item: Item, row: Row, results: list[dict[str, Any]], suffix: str = "") -> list[tuple[Cell, ...]]:
    """Return a table row for each set of results that belong to a row of the item and differ only in their seed."""
    return [our_row(label + suffix, group, item, row) for label, group in groups_of(item, row, results).items()]


def groups_of(item: Item, row: Row, results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the results that belong to a row, by their label."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in fitting(results, item, row):
        groups.setdefault(label_of(result, row), []).append(result)
    return groups


def our_row(label: str, results: list[dict[str, Any]], item: Item, row: Row) -> tuple[Cell, ...]:
    """Return the table row of results that differ only in their seed."""
    scores = {name: over_seeds([score_of(result, name) for result in results]) for name in item.columns}
    printed, gap = printed_score(item, row), None
    if printed is not None and scores[item.compared]:
        # The gap is that of the rounded numbers, so that readers can check it against the table.
        gap = Difference(round(round(scores[item.compared].mean, 1) - printed, 1))
    return (
        label,
        *scores.values(),
        gap,
        tuple(sorted(result["seed"] for result in results)),
        statistics.mean(result["total_seconds"] for result in results) / 60,
        ", ".join(sorted({result["device"].removeprefix("NVIDIA ") for result in results})),
    )


def printed_score(item: Item, row: Row) -> float | None:
    """Return the number of the paper's own method with which ours are compared."""
    return dict(zip(item.columns, row.printed.get(OWN, ()), strict=False)).get(item.compared)


def small_runs(name: str) -> list[dict[str, Any]]:
    """Return the recorded runs of an item at small scale."""
    return (recorded(f"{SMALL}/{name}") or {"runs": []})["runs"]


# Figures ----------------------------------------------------------------------------------------------------


def figure_of(item: Item, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Lines | Matrix | None:
    """Return the figure of an item, or None if it has none or nothing is recorded for it."""
    if item.shows_matrix:
        return matrix_of(item, [*old, *new])
    return lines_of(item, old, new) if item.x else None


def lines_of(item: Item, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Lines | None:
    """Return the scores over the x axis: a line for each score of each set of runs, and the paper's points.

    Sets of runs with a single row are left out: they would be points without a line.
    """
    label, place = item.x
    lines: dict[str, list[tuple[float, Score]]] = {}
    for row in item.rows:
        again = {label + NEW: group for label, group in groups_of(item, row, new).items()}
        for name, group in (groups_of(item, row, old) | again).items():
            for score, title in item.columns.items():
                mean = over_seeds([score_of(result, score) for result in group])
                if mean:
                    which = name.removeprefix(f"{row.name}, ")
                    lines.setdefault(f"{title}, {which}", []).append((place(row), mean))
        score = printed_score(item, row)
        if score is not None:
            lines.setdefault(PAPERS, []).append((place(row), Score(score, None)))
    ours = {name: points for name, points in lines.items() if len(points) > 1 and name != PAPERS}
    printed = {name: points for name, points in lines.items() if name == PAPERS}
    return Lines(ours | printed, label, "accuracy (%)") if ours else None


def matrix_of(item: Item, results: list[dict[str, Any]]) -> Matrix | None:
    """Return the confusion matrix of the latest result that has one, its columns in the order of the classes."""
    for result in reversed([each for row in item.rows for each in fitting(results, item, row)]):
        if "confusion" in result:
            found = Confusion(confusion_of(result), result["num_seen"])
            return Matrix(found.counts[:, found.columns], result["num_seen"])
    return None
