"""Measure how fast `openworld predict` is, from the command to the complete file, with the start of Python.

    python benchmarks/predict.py RUN IMAGES

Writes benchmarks/results/predict-{cpu|cuda}.json.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import RESULTS, commit

from openworld.compute.runtime import pick_device
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder

RUNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("images", type=Path, help="folder of images")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result file")
    options = parser.parse_args()
    device = pick_device("auto")
    training = RunFolder.open(options.run).config().training
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(device),
        "network": training.network,
        "image_size": training.image_size,
        "by_views": {str(views): timed(options, views) for views in (5, 0, 10)},
    }
    (options.results / f"predict-{device.type}.json").write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content["by_views"], indent=1))


def timed(options: argparse.Namespace, views: int) -> dict:
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.csv"
        for _ in range(RUNS):
            began = time.perf_counter()
            command = [sys.executable, "-m", "openworld", "predict", options.run, options.images, "--out", out]
            subprocess.run([*map(str, command), "--views", str(views), "--quiet"], check=True)
            seconds.append(time.perf_counter() - began)
        count = len(out.read_text().splitlines()) - 1
    median = sorted(seconds)[RUNS // 2]
    return {"images": count, "seconds": seconds, "images_per_s": count / median}


if __name__ == "__main__":
    main()
