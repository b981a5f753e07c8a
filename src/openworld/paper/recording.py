"""From a run folder to a result that can be recorded: the fields of its summary, beside the evidence for them."""

import shlex
from pathlib import Path
from typing import Any

from openworld.errors import UserError
from openworld.record import FEATURES_RUN, RunFolder


def result_of(run: RunFolder) -> dict[str, Any]:
    """`total_seconds` includes learning the features with which the run began, if that was part of it."""
    summary, environment = run.summary(), run.read_json("environment.json")
    if summary is None:
        how = f"openworld train --resume --out {shlex.quote(str(run.path))}"
        raise UserError(f"{run.path} is not finished: continue it with `{how}`")
    if environment is None:
        raise UserError(f"{run.path}: without its environment.json nobody knows what made this result")
    features = start_of(run, summary["start"])
    stages = [summary, features] if features else [summary]
    return {
        **summary,
        "total_seconds": round(sum(stage["seconds"] for stage in stages), 2),
        "command": [shlex.join(session["command"]) for session in environment["sessions"]],
        "environment": environment["sessions"],
        "config": run.read("config.toml"),
        "epochs": run.metrics(),
        **({"start_run": features} if features else {}),
    }


def start_of(run: RunFolder, start: str | None) -> dict[str, Any] | None:
    """The summary of the run with which one began: in its own folder, or elsewhere."""
    if start is None:
        return None
    return RunFolder(run.path / FEATURES_RUN if start == FEATURES_RUN else Path(start)).summary()
