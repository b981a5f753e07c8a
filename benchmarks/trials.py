"""Train variants that are no grid (`openworld sweep` trains grids), and record them with the metrics of every epoch.

    python benchmarks/trials.py NAME --seconds 500 --base 'cifar100 --steps 8000' 'A: --queue 2048' 'B: --lr 0.2'

A variant is a label and flags of `openworld train`, in addition to those of --base. All are trained in one process, so
that torch compiles the code only once. Writes results/trials/NAME.json after every variant: its flags, its summary and
the metrics of every epoch. When the time is up, the script stops the running variant and records what it has. --runs
DIR keeps each run as DIR/LABEL, so that later variants can --start from it.
"""

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
from pathlib import Path

from measure import RESULTS, commit

from openworld.cli import make_parser
from openworld.commands.common import runtime_of
from openworld.commands.train import settings_of
from openworld.core.signals import Interrupted
from openworld.planning.sweep import Outcome, Trial, carry_out
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="NAME of the result file")
    parser.add_argument("--seconds", type=float, default=10**6, help="time limit for all variants")
    parser.add_argument("--base", default="cifar100", help="flags of all variants [cifar100]")
    parser.add_argument("--results", type=Path, default=RESULTS / "trials", help="folder of NAME.json")
    parser.add_argument("--runs", type=Path, help="folder that keeps the runs [they are deleted]")
    parser.add_argument("variants", nargs="+", metavar="'LABEL: FLAGS'")
    options = parser.parse_args()
    flags = {
        label: shlex.split(f"{options.base} {more}") for label, _, more in (v.partition(":") for v in options.variants)
    }
    parsed = {label: make_parser().parse_args(["train", *words]) for label, words in flags.items()}
    if len(flags) < len(options.variants) or any(each.minutes for each in parsed.values()):
        parser.error("each variant needs a label of its own, and --steps instead of --minutes")
    trials = [Trial(label, settings_of(each)) for label, each in parsed.items()]
    runtime = runtime_of(next(iter(parsed.values())))
    content = {"name": options.name, "command": f"python {shlex.join(sys.argv)}", "commit": commit()}
    content |= {"environment": environment(runtime.device), "trials": []}

    def record(trial: Trial, run: RunFolder, failure: str | None = None) -> None:
        result = {"label": trial.name, "flags": flags[trial.name], "summary": run.summary(), "epochs": run.metrics()}
        content["trials"].append(result | ({"failure": failure} if failure else {}))
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / f"{options.name}.json").write_text(json.dumps(content, indent=1) + "\n")
        report(content["trials"][-1])

    stop_after(options.seconds)
    running: list[tuple[Trial, RunFolder]] = []

    def end(outcome: Outcome) -> None:
        record(outcome.trial, outcome.folder, outcome.failure)
        running.clear()

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.runs or Path(temporary)
        try:
            carry_out(trials, folder, runtime, begin=lambda *pair: running.append(pair), end=end)
        except Interrupted:
            for pair in running:
                record(*pair)


def stop_after(seconds: float) -> None:
    """Stop the running variant when the time is up, as SIGTERM does."""
    alarm = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    alarm.daemon = True
    signal.signal(signal.SIGTERM, stop_at_once)  # before and after training, which handles the signal itself
    alarm.start()


def stop_at_once(number: int, _frame: object) -> None:
    raise Interrupted(number, "the time is up")


def report(trial: dict) -> None:
    for epoch in trial["epochs"][-1:]:
        scores = {
            model: " / ".join(f"{epoch[model][part]:.1f}" for part in ("seen", "novel", "all"))
            for model in ("average", "student")
        }
        print(trial["label"], f"step {epoch['step']}", f"{epoch['seconds']:.0f} s", scores, flush=True)


if __name__ == "__main__":
    main()
