"""From a run folder to a result that can be recorded: the fields of its summary, beside the evidence for them."""

from typing import Any

from openworld.core.errors import UserError
from openworld.runs.folder import START, RunFolder


def result_of(run: RunFolder) -> dict[str, Any]:
    """`total_seconds` includes the run with which this one began."""
    summary, evidence = run.summary(), run.evidence()
    if summary is None:
        raise UserError(f"{run.path} is not finished: continue it with `{run.resume_command}`")
    if not evidence["environment"]:
        raise UserError(f"{run.path}: without its environment.json nobody knows what made this result")
    start_run = run.read_json(START)
    stages = [summary, start_run] if start_run else [summary]
    return {
        **summary,
        "total_seconds": round(sum(stage["seconds"] for stage in stages), 2),
        **evidence,
        **({"start_run": start_run} if start_run else {}),
    }
