"""The form in which an item of the paper is shown: a table, and perhaps a figure."""

from dataclasses import dataclass

PARTS = ("seen", "novel", "all")


@dataclass(frozen=True)
class Score:
    """The mean, and how far seeds spread; nothing is known of that where there is one run, or one printed number."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.std is None else f"±{self.std:.1f}")


@dataclass(frozen=True)
class Count:
    """An estimated number of classes, and its interval; one that is open at its end has no high."""

    num_classes: int
    low: int
    high: int | None

    def __str__(self) -> str:
        return f"{self.num_classes} ({self.low}-{self.high or '?'})"


class Difference(float):
    """Told with its sign."""


Cell = str | int | float | Score | Count | tuple[int, ...] | None


def cell_text(cell: Cell) -> str:
    """As people are shown it."""
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
    """The first column says what a row is; the others are mostly numbers."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    notes: tuple[str, ...]
    lines: dict[str, list[tuple[float, float]]] | None = None
    """Of a figure: the points of each line by its name."""
    axes: tuple[str, str] = ("", "")

    def texts(self) -> list[tuple[str, ...]]:
        return [tuple(map(cell_text, row)) for row in self.rows]
