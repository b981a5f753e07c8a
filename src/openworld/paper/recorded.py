"""What was recorded, read; and the form in which people are shown it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTS = ("seen", "novel", "all")
RUNS = "tables"
"""Within the results: the folder of those that fill the paper's tables, a file for each run."""


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


def told(cell: Cell) -> str:
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
        return [tuple(map(told, row)) for row in self.rows]


def results_dir() -> Path:
    """Of an installed package they lie in it, of a checkout beside it."""
    package = Path(__file__).parent.parent
    return package / "results" if (package / "results").is_dir() else package.parent.parent / "benchmarks" / "results"


def recorded(name: str) -> dict[str, Any] | None:
    path = results_dir() / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def name_of(result: dict[str, Any]) -> str:
    """What the file of a recorded run is called: there is one for each length and seed."""
    before = f"{result['start_run']['steps']}-" if "start_run" in result else ""
    return "{dataset}-{labelled:g}-{recipe}-{before}{steps}-seed{seed}".format(**result, before=before)


def recorded_runs() -> Iterator[dict[str, Any]]:
    """Those for the tables; a file that is called otherwise than it should is a copy, and would count twice."""
    for path in sorted((results_dir() / RUNS).glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if path.stem == name_of(result):
            yield result
