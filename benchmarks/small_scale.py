"""Run items of the paper at small scale, on the digits, and record them: small_scale.py [ITEM ...] --seeds 0 1 2.

Trains what `openworld paper ITEM --run --scale small` trains, and writes benchmarks/results/small/ITEM.json: for each
run its summary, its configuration and its confusion matrix; and the seconds of training with one seed.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

from measure import RESULTS, commit

from openworld.compute.runtime import make_runtime
from openworld.paper import ITEMS
from openworld.paper.items import at_small_scale
from openworld.paper.recording import result_of
from openworld.paper.records import SMALL
from openworld.paper.running import trials_of
from openworld.planning.sweep import carry_out
from openworld.runs.environment import environment

LEFT_OUT = ("epochs", "environment", "command", "class_sizes", "start_run")
"""Parts of a result that are not recorded for each run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", nargs="*", help="items [all with rows of accuracies]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/small"), help="folder of the runs")
    options = parser.parse_args()
    for name in options.items or [name for name, item in ITEMS.items() if item]:
        record(name, options.seeds, options.out)


def record(name: str, seeds: list[int], out: Path) -> None:
    item, runtime = at_small_scale(ITEMS[name]), make_runtime("cpu", quiet=True)
    outcomes = carry_out(trials_of(name, item, item.rows, "auto", seeds), out, runtime)
    results = [result_of(outcome.folder) for outcome in outcomes]
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "equivalent": f"openworld paper {name} --run --scale small --seeds {len(seeds)}",
        "commit": commit(),
        "environment": environment(runtime.device),
        "training_seconds_for_one_seed": round(sum(each["total_seconds"] for each in results) / len(seeds), 1),
        "runs": [{key: value for key, value in each.items() if key not in LEFT_OUT} for each in results],
    }
    path = RESULTS / SMALL / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(name, content["training_seconds_for_one_seed"], flush=True)


if __name__ == "__main__":
    main()
