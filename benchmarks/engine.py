"""What a training step costs: `openworld bench`, recorded. Writes engine-{cpu|cuda}.json.

    python benchmarks/engine.py [--device cuda] [--compile off]

Needs a machine on which nothing else runs.
"""

import json
import shlex
import subprocess
import sys

from measure import RESULTS, commit


def main() -> None:
    command = [sys.executable, "-m", "openworld", "bench", "--json", *sys.argv[1:]]
    result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    device = "cpu" if result["environment"]["device"] == "cpu" else "cuda"
    content = {"command": f"python {shlex.join(sys.argv)}", "commit": commit(), **result}
    path = RESULTS / f"engine-{device}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
