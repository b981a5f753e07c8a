"""What an item of the paper consists of: rows, each a problem on a data set with the numbers that the paper prints."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from openworld.core.errors import UserError

Printed = tuple[float | None, ...]
"""Numbers as printed, in % and in the order of the columns of the item; None where the paper prints none."""
OWN = "TRSSL"
"""Name of the paper's own method among the printed ones."""
NUM_CLASSES = {
    "digits": 10,
    "cifar10": 10,
    "cifar100": 100,
    "imagenet100": 100,
    "tiny-imagenet": 200,
    "oxford-pets": 37,
    "aircraft": 100,
    "stanford-cars": 196,
}
ACCURACIES = {"seen": "Seen", "novel": "Novel", "all": "All"}
"""Columns of most items: the titles by the name of the score (`records.score_of`)."""


@dataclass(frozen=True)
class Row:
    """A problem, and the numbers that the paper prints for it."""

    data: str
    variant: str = ""
    """What distinguishes rows with the same data, as a part of the name."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the problem and the method that differ from the recipe."""
    printed: dict[str, Printed] = field(default_factory=dict)
    """Numbers by method, the paper's own method last."""
    paper_settings: dict[str, Any] = field(default_factory=dict)
    """Settings that the paper uses only for this row. The recipe `paper` gets them."""

    @property
    def name(self) -> str:
        """The name by which `--run` selects the row."""
        return f"{self.data}-{self.variant}" if self.variant else self.data

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the problem; None if it is estimated."""
        number = self.settings.get("num_classes", NUM_CLASSES[self.data])
        return None if number == "auto" else number


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper about accuracies."""

    summary: str
    """One line for the list of items."""
    title: str
    rows: tuple[Row, ...]
    recipe: str = "auto"
    """The recipe of our runs; auto: any recipe."""
    columns: dict[str, str] = field(default_factory=lambda: ACCURACIES)
    """Titles of the columns with scores, by the name of the score."""
    compared: str = "all"
    """The score by which our rows are compared with the paper's."""
    x: tuple[str, Callable[[Row], float]] | None = None
    """Label and value of the x axis, if the item is a figure with a line over its rows."""
    shows_matrix: bool = False
    """Whether the item is the figure of a confusion matrix."""
    notes: tuple[str, ...] = ()
    """Notes for this item only."""
    is_small: bool = False
    """Whether this is the item at small scale, on the digits."""

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings that differ between the rows."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.settings))

    def row(self, name: str) -> Row:
        """Return the row of this name, or raise a UserError."""
        for row in self.rows:
            if row.name == name:
                return row
        raise UserError(f"--run {name}: no such row (choose from {', '.join(row.name for row in self.rows)})")


SMALL_DATA, FEWEST_SEEN = "digits", 2
SMALL_STEPS = {"steps": 330, "epoch_steps": 66}
"""Length of a run at small scale: three fifths of the recipe `digits`."""


def at_small_scale(item: Item) -> Item:
    """Return the same experiment on the digits, with each problem once and without the numbers of the paper."""
    rows: dict[str, Row] = {}
    for row in item.rows:
        settings, variant = dict(row.settings), row.variant
        if row.num_classes and "num_classes" in settings:
            settings["num_classes"] = round(row.num_classes * NUM_CLASSES[SMALL_DATA] / NUM_CLASSES[row.data])
            variant = str(settings["num_classes"])
        num_seen = round(NUM_CLASSES[SMALL_DATA] * (1 - settings.get("novel", 50.0) / 100))
        problem = str(sorted(settings.items()))
        if problem not in rows and num_seen >= FEWEST_SEEN:
            rows[problem] = Row(SMALL_DATA, variant, settings)
    small = list(rows.values())
    if len({row.name for row in small}) < len(small):  # rows that only their data distinguished
        small = [replace(row, variant=f"{row.settings['labelled']:g}") for row in small]
    recipe = item.recipe if item.recipe == "auto" else SMALL_DATA
    return replace(item, rows=tuple(small), recipe=recipe, is_small=True)
