"""The form in which `openworld paper` shows an item: a table, and for some items a figure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from openworld.results.scores import Score

if TYPE_CHECKING:
    from openworld.results.plots import Lines, Matrix


@dataclass(frozen=True)
class Count:
    """An estimated number of classes, with its interval."""

    num_classes: int
    low: int
    high: int | None
    """Upper end of the interval; None if the interval has no upper end."""

    def __str__(self) -> str:
        return f"{self.num_classes} ({self.low}-{self.high or '?'})"


class Difference(float):
    """A difference of two numbers; it is shown with its sign."""


Cell = str | int | float | Score | Count | tuple[int, ...] | None


def cell_text(cell: Cell) -> str:
    """Return the text of a cell."""
    match cell:
        case None:
            return "-"
        case Difference():
            return f"{cell:+.1f}"
        case float():
            return f"{cell:.1f}"
        case tuple():
            return ", ".join(map(str, cell))
        case _:
            return str(cell)


@dataclass(frozen=True)
class Table:
    """A table with an optional figure. The first column names the row; most other columns are numbers."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    notes: tuple[str, ...]
    figure: "Lines | Matrix | None" = None

    def texts(self) -> list[tuple[str, ...]]:
        """Return the cells of all rows as text."""
        return [tuple(map(cell_text, row)) for row in self.rows]
