"""Train with several seeds and record the results: measure.py NAME [DATA] --seeds 0 1 2 [train flags].

    python benchmarks/measure.py digits --seeds 0 1 2
    python benchmarks/measure.py cifar100-10 cifar100 --seeds 0 1 2 --steps 40000

Writes benchmarks/results/NAME.json after every seed: the scores of each run at its last step, their mean and standard
deviation, the metrics of every epoch, and the command, commit, hardware and versions. Seconds are those of the run
itself, without the time to learn the features that it started from. benchmarks/record.py records both times.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from openworld.cli import make_parser
from openworld.commands.common import runtime_of
from openworld.commands.train import request_of
from openworld.core.config_files import write_toml
from openworld.planning.request import execute
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="NAME of the result file")
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="random seeds")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of NAME.json")
    options, train_flags = parser.parse_known_args()
    parsed = make_parser().parse_args(["train", *train_flags])
    if parsed.minutes is not None:
        parser.error("--minutes gives every seed a different number of steps; use --steps instead")
    runtime = runtime_of(parsed)
    runs = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            run, request = RunFolder(Path(folder) / "run"), request_of(parsed)
            request = replace(request, settings={**request.settings, "seed": seed})
            summary = execute(request, run, runtime)
            runs.append({**summary, "epochs": run.metrics()})
            config = run.config()
        record(options, config, runtime.device, runs)
        print(json.dumps({key: summary[key] for key in ("seed", "seen", "novel", "all", "seconds")}))


def record(options: argparse.Namespace, config, device, runs: list[dict]) -> None:
    content = {
        "name": options.name,
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(device),
        "config": write_toml(config),
        "seeds": [run["seed"] for run in runs],
        **{key: spread([run[key] for run in runs]) for key in ("seen", "novel", "all", "nmi", "ari", "seconds")},
        "runs": runs,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / f"{options.name}.json").write_text(json.dumps(content, indent=1) + "\n")


def spread(values: list[float]) -> dict[str, float]:
    """Return mean, standard deviation, minimum and maximum."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "std": deviation, "min": min(values), "max": max(values)}


def commit() -> str:
    """Return $COMMIT if it is set (for machines without git), else the commit that is checked out.

    "-dirty" at its end means that files outside benchmarks/results differ from that commit.
    """
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]

    def git(*arguments: str) -> str:
        process = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=RESULTS.parent, check=True)
        return process.stdout.strip()

    changed = git("status", "--porcelain", "--", ":/", ":!/benchmarks/results")
    return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")


if __name__ == "__main__":
    main()
