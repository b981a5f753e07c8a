"""Results of several runs: means over seeds, a CSV file of the runs."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openworld.core.files import write_whole

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
class Group:
    """Runs that differ only in their seed."""

    settings: dict[str, Any]
    """The settings that differ between groups."""
    summaries: list[dict[str, Any]]

    def score(self, part: str) -> Score | None:
        """Return the accuracy on a part; None if the true classes are unknown."""
        return over_seeds([summary[part] for summary in self.summaries])

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(summary["seed"] for summary in self.summaries))

    @property
    def minutes(self) -> float:
        """Mean training time, with that of the features from which a run started."""
        return statistics.mean(summary["total_seconds"] for summary in self.summaries) / 60


def over_seeds(scores: Sequence[float | None]) -> Score | None:
    """Return the mean over seeds, and the standard deviation if there is more than one seed.

    >>> str(over_seeds([60.0, 62.0]))
    '61.0±1.4'
    """
    if not scores or None in scores:
        return None
    return Score(statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else None)


def grouped(runs: Sequence[tuple[Mapping[str, Any], dict[str, Any]]]) -> list[Group]:
    """Group runs, given as their settings and their summary, by all settings but the seed."""
    groups: dict[tuple, Group] = {}
    for settings, summary in runs:
        without_seed = {name: value for name, value in settings.items() if name != "seed"}
        group = groups.setdefault(tuple(without_seed.items()), Group(without_seed, []))
        group.summaries.append(summary)
    return list(groups.values())


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a CSV file."""
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.getvalue())
