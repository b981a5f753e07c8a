"""Read the recorded results, and their scores."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from openworld.ops.metrics import TASK_AWARE

RUNS, SMALL = "tables", "small"
"""Subfolders of the results: one file for each run for the paper's tables, and one for each item at small scale."""


def results_dir() -> Path:
    """Return the folder of recorded results: inside an installed package, beside the package in a checkout."""
    installed = Path(__file__).parent / "recorded"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "benchmarks" / "results"


def recorded(name: str) -> dict[str, Any] | None:
    """Return the recorded result with this name, or None."""
    path = results_dir() / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def name_of(result: dict[str, Any]) -> str:
    """Return the name of the file of a recorded run, without its suffix."""
    before = f"{result['start_run']['steps']}-" if "start_run" in result else ""
    after = f"-{result['variant']}" if result.get("variant") else ""
    return "{dataset}-{labelled:g}-{recipe}-{before}{steps}-seed{seed}{after}".format(
        **result, before=before, after=after
    )


def recorded_runs() -> Iterator[dict[str, Any]]:
    """Yield the recorded runs for the paper's tables.

    A file whose name does not match its content is skipped: it is a copy, and would count a run twice.
    """
    for path in sorted((results_dir() / RUNS).glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if path.stem == name_of(result):
            yield result


def score_of(result: dict[str, Any], name: str) -> float | None:
    """Return a score of a result; None if the result does not have it."""
    if name == "task_aware":
        return result["protocols"].get(TASK_AWARE, {}).get("novel")
    if name in ("novel_as_seen", "seen_as_novel"):
        return confused(result, name) if "confusion" in result else None
    return result[name]


def confusion_text(counts: np.ndarray) -> list[str]:
    """Return a confusion matrix as a record holds it: a line of text for each true class."""
    return [" ".join(map(str, row)) for row in counts.tolist()]


def confusion_of(result: dict[str, Any]) -> np.ndarray:
    """Return the confusion matrix of a record."""
    return np.array([[int(word) for word in row.split()] for row in result["confusion"]])


def confused(result: dict[str, Any], name: str) -> float | None:
    """Return the percentage of novel samples that are predicted as a seen class, or of the reverse."""
    counts, num_seen = confusion_of(result), result["num_seen"]
    rows = counts[num_seen:] if name == "novel_as_seen" else counts[:num_seen]
    wrong = rows[:, :num_seen] if name == "novel_as_seen" else rows[:, num_seen:]
    return 100 * float(wrong.sum()) / float(rows.sum()) if rows.sum() else None
