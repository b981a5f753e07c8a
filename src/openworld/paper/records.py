"""What was recorded, read; and the form in which people are shown it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUNS = "tables"
"""Within the results: the folder of those that fill the paper's tables, a file for each run."""


def results_dir() -> Path:
    """Return the folder of recorded results: inside an installed package, beside the package in a checkout."""
    installed = Path(__file__).parent / "recorded"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "benchmarks" / "results"


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
