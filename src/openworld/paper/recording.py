"""Turn a run folder into a result that can be recorded: its summary together with the evidence for it."""

from typing import Any

import numpy as np

from openworld.core.errors import UserError
from openworld.ops.metrics import confusion_matrix
from openworld.paper.records import confusion_text
from openworld.runs.folder import START, RunFolder
from openworld.runs.outputs import read_outputs


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
    confusion = confusion_of_run(run)
    return {
        **summary,
        "total_seconds": run.total_seconds(),
        **evidence,
        **({"start_run": start_run} if start_run else {}),
        **({"confusion": confusion_text(confusion)} if confusion is not None else {}),
    }


def confusion_of_run(run: RunFolder) -> np.ndarray | None:
    """Return the confusion matrix of the test part from the stored outputs; None if they are missing or there is none.

    Rows are true classes, columns are outputs.
    """
    outputs = (read_outputs(run) or {}).get("test")
    if outputs is None or bool((outputs.truth < 0).any()):
        return None
    truth, predicted = outputs.truth.numpy(), outputs.logits.argmax(dim=1).numpy()
    num_seen = run.split_and_facts()[0].num_seen
    return confusion_matrix(truth, predicted, max(int(truth.max()) + 1, num_seen), outputs.logits.shape[1])
