"""The command `openworld evaluate`: compute the accuracies of a run."""

import argparse
import json
from pathlib import Path

from openworld.commands.common import (
    add_command,
    add_data_flags,
    add_device_flag,
    print_scores,
    print_warning,
    runtime_of,
)


def add(commands) -> None:
    summary = "Compute seen / novel / all accuracy under each protocol, NMI and ARI of a run's last checkpoint."
    parser = add_command(commands, "evaluate", run, summary)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--part", choices=("test", "unlabelled"), help="samples to evaluate [test; unlabelled if there is no test part]"
    )
    add_device_flag(parser)
    add_data_flags(parser)


def run(parsed: argparse.Namespace) -> int:
    from openworld.runs.evaluation import evaluate_run
    from openworld.runs.folder import RunFolder

    folder = RunFolder.open(parsed.run)
    scores = evaluate_run(folder, parsed.part, runtime_of(parsed), print_warning)
    if parsed.json:
        print(json.dumps(scores))
    else:
        print_scores(f"{folder.config().data}, {scores['part']} part, step {scores['step']}", scores)
    return 0
