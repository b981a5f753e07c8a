"""Read the recorded results."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUNS = "tables"
"""Subfolder of the results for the paper's tables. It has one file for each run."""


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
    return "{dataset}-{labelled:g}-{recipe}-{before}{steps}-seed{seed}".format(**result, before=before)


def recorded_runs() -> Iterator[dict[str, Any]]:
    """Yield the recorded runs for the paper's tables.

    A file whose name does not match its content is skipped: it is a copy, and would count a run twice.
    """
    for path in sorted((results_dir() / RUNS).glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if path.stem == name_of(result):
            yield result
