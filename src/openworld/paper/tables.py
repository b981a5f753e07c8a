"""The form in which `openworld paper` shows an item: a table, and for some items a figure."""

from dataclasses import dataclass

PARTS = ("seen", "novel", "all")


@dataclass(frozen=True)
class Score:
    """An accuracy in %."""

    mean: float
    """Mean over seeds."""
    std: float | None
    """Standard deviation over seeds; None for a single run and for a printed number."""

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.std is None else f"±{self.std:.1f}")


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
    lines: dict[str, list[tuple[float, float]]] | None = None
    """Points of each line of the figure, by its name; None if there is no figure."""
    axes: tuple[str, str] = ("", "")
    """Labels of the x axis and the y axis."""

    def texts(self) -> list[tuple[str, ...]]:
        """Return the cells of all rows as text."""
        return [tuple(map(cell_text, row)) for row in self.rows]
