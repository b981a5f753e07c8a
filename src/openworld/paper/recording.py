"""Turn a run folder into a result that can be recorded: its summary together with the evidence for it."""

from typing import Any

from openworld.core.errors import UserError
from openworld.runs.folder import START, RunFolder


def result_of(run: RunFolder) -> dict[str, Any]:
    """Return the summary, evidence and start run of a finished run.

    `total_seconds` includes the time of the run that this one started from.
    """
    summary, evidence = run.summary(), run.evidence()
    if summary is None:
        raise UserError(f"{run.path} is not finished; continue with: {run.resume_command}")
    if not evidence["environment"]:
        raise UserError(
            f"{run.path}: environment.json is missing or damaged, so openworld cannot tell which command and which "
            "device made this result. Train the run again"
        )
    start_run = run.read_json(START)
    stages = [summary, start_run] if start_run else [summary]
    return {
        **summary,
        "total_seconds": round(sum(stage["seconds"] for stage in stages), 2),
        **evidence,
        **({"start_run": start_run} if start_run else {}),
    }
