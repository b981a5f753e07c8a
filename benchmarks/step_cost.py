"""Record what a training step costs, compared with the authors' arrangement: results/step-cost-{cpu|cuda}.json.

    python benchmarks/step_cost.py [--device cuda] [--compile off]

The flags are those of `openworld bench`, which measures our side. Use an otherwise idle machine.
"""

import json
import shlex
import subprocess
import sys

from authors import measure_authors
from measure import RESULTS, commit

from openworld.cli import make_parser
from openworld.commands.common import runtime_of
from openworld.training.step_cost import make_workload


def main() -> None:
    flags = sys.argv[1:]
    command = [sys.executable, "-m", "openworld", "bench", "--json", *flags]
    ours = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    runtime = runtime_of(make_parser().parse_args(["bench", *flags]))
    theirs = measure_authors(make_workload(runtime), runtime, lambda line: print(line, file=sys.stderr, flush=True))
    device = "cpu" if ours["environment"]["device"] == "cpu" else "cuda"
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        **ours,
        "speedup": theirs["epoch_s"] / ours["epoch_s"],
        "authors": theirs,
    }
    path = RESULTS / f"step-cost-{device}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
