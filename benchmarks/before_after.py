"""Measure whether a change makes a training step slower: run `openworld bench` of two checkouts in turn.

    git worktree add ../before COMMIT
    python benchmarks/before_after.py seam ../before --rounds 3 [--device cuda]

Unknown flags, such as --device, go to `openworld bench`. The checkouts may have different module layouts: each runs in
its own process. Use an otherwise idle machine. Writes results/before-after-NAME-{cpu|cuda}.json: every measurement, and
the ratios of the medians, after divided by before.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from measure import RESULTS, commit

FIGURES = ("step_ms", "uncertainty_s", "evaluation_s", "epoch_s", "set_up_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="NAME of the result file")
    parser.add_argument("before", type=Path, help="a checkout of the code before the change")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each checkout [3]")
    options, flags = parser.parse_known_args()
    checkouts = {"before": options.before.absolute(), "after": Path(__file__).parent.parent.absolute()}
    rounds: dict[str, list[dict]] = {name: [] for name in checkouts}
    for number in range(options.rounds):
        for name in sorted(checkouts, reverse=number % 2 == 0):  # take turns: the first has the cooler machine
            rounds[name].append(bench(checkouts[name], flags))
            print(name, {figure: round(rounds[name][-1][figure], 2) for figure in FIGURES}, flush=True)
    medians = {name: {f: statistics.median(run[f] for run in runs) for f in FIGURES} for name, runs in rounds.items()}
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "before": head_of(checkouts["before"]),
        "environment": rounds["after"][0]["environment"],
        "medians": medians,
        "ratio": {figure: medians["after"][figure] / medians["before"][figure] for figure in FIGURES},
        "rounds": rounds,
    }
    device = "cpu" if rounds["after"][0]["environment"]["device"] == "cpu" else "cuda"
    path = RESULTS / f"before-after-{options.name}-{device}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(path, content["ratio"])


def bench(checkout: Path, flags: list[str]) -> dict:
    command = [sys.executable, "-m", "openworld", "bench", "--json", "--quiet", *flags]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment, cwd="/")
    result = json.loads(process.stdout)
    return {figure: result[figure] for figure in FIGURES} | {"parts_ms": result["parts_ms"]} | environment_of(result)


def environment_of(result: dict) -> dict:
    return {"environment": result["environment"], "setting": result["setting"]}


def head_of(checkout: Path) -> str:
    head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=checkout, capture_output=True, text=True)
    return head.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
