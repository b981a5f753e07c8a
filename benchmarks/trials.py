"""Many variants of a run in one process, so that compiling is paid once.

    python benchmarks/trials.py NAME --seconds 500 --base 'cifar100 --steps 8000' 'A: --queue 2048' 'B: --lr 0.2'

A variant is a label and flags of `openworld train`, on top of those of --base. Writes results/trials/NAME.json
after every variant: its flags, its summary, the metrics of every epoch. When the time is up, the variant at work is
stopped and recorded as far as it got. With --runs DIR the runs stay, as DIR/LABEL, for --start of later variants.
"""

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from measure import RESULTS, commit

from openworld.cli import make_parser
from openworld.commands.common import runtime_of
from openworld.commands.train import request_of
from openworld.core.signals import Interrupted
from openworld.planning.request import execute
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=float, default=10**6)
    parser.add_argument("--base", default="cifar100")
    parser.add_argument("--results", type=Path, default=RESULTS / "trials", help="where NAME.json goes")
    parser.add_argument("--runs", type=Path, help="where the runs stay; by default they do not")
    parser.add_argument("variants", nargs="+", metavar="'LABEL: FLAGS'")
    options = parser.parse_args()
    began = time.monotonic()
    content = {"name": options.name, "command": f"python {shlex.join(sys.argv)}", "commit": commit(), "trials": []}
    options.results.mkdir(parents=True, exist_ok=True)
    for variant in options.variants:
        label, _, flags = variant.partition(":")
        left = options.seconds - (time.monotonic() - began)
        if left <= 0:
            break
        with tempfile.TemporaryDirectory() as passing:
            folder = RunFolder((options.runs or Path(passing)) / label)
            trial = {"label": label, **run(shlex.split(f"{options.base} {flags}"), folder, left)}
        content["environment"] = trial.pop("environment")
        content["trials"].append(trial)
        (options.results / f"{options.name}.json").write_text(json.dumps(content, indent=1) + "\n")
        report(trial)


def run(flags: list[str], folder: RunFolder, seconds: float) -> dict:
    parsed = make_parser().parse_args(["train", *flags])
    runtime = runtime_of(parsed)
    alarm = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    alarm.daemon = True
    signal.signal(signal.SIGTERM, stop_at_once)  # while nothing trains; training stops by itself
    alarm.start()
    try:
        execute(request_of(parsed), folder, runtime)
    except Interrupted:
        pass
    finally:
        alarm.cancel()
    return {
        "flags": flags,
        "summary": folder.summary(),
        "epochs": folder.metrics(),
        "environment": environment(runtime.device),
    }


def stop_at_once(number: int, _frame: object) -> None:
    raise Interrupted(number, "the time is up")


def report(trial: dict) -> None:
    for epoch in trial["epochs"][-1:]:
        scores = {
            who: " / ".join(f"{epoch[who][part]:.1f}" for part in ("seen", "novel", "all"))
            for who in ("average", "student")
        }
        print(trial["label"], f"step {epoch['step']}", f"{epoch['seconds']:.0f} s", scores, flush=True)


if __name__ == "__main__":
    main()
