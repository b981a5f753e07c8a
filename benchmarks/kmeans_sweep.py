"""Compare our k-means for many k in one sweep with a loop over scikit-learn's KMeans.

    python benchmarks/kmeans_sweep.py [--device cuda] [--samples 50000 --width 512 --first 50 --last 400 --step 1]

The features are synthetic: 100 Gaussian blobs that overlap. On a GPU the script leaves scikit-learn out, because it
would take hours. Writes benchmarks/results/kmeans-sweep-{cpu|cuda}.json.
"""

import argparse
import json
import shlex
import statistics
import sys
import time

import numpy as np
import torch
from measure import RESULTS, commit
from sklearn.cluster import KMeans

from openworld.compute.device import synchronize
from openworld.ops.kmeans import kmeans_sweep
from openworld.ops.rng import generator
from openworld.runs.environment import environment

RUNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--samples", type=int, default=10_000, help="number of samples [10000]")
    parser.add_argument("--width", type=int, default=128, help="number of features [128]")
    parser.add_argument("--first", type=int, default=50, help="smallest k [50]")
    parser.add_argument("--last", type=int, default=150, help="largest k [150]")
    parser.add_argument("--step", type=int, default=5, help="difference between two k [5]")
    options = parser.parse_args()
    features, counts = blobs(options.samples, options.width), range(options.first, options.last + 1, options.step)
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(options.device),
        "samples": options.samples,
        "width": options.width,
        "counts": [options.first, options.last, options.step],
        "num_runs": RUNS,
        "ours": measure_ours(features, counts, options.device),
    }
    if options.device.type == "cpu":
        theirs = content["scikit-learn"] = measure_theirs(features.numpy(), counts)
        content["speedup"] = theirs["seconds"] / content["ours"]["seconds"]
        pairs = zip(content["ours"]["inertia"], theirs["inertia"], strict=True)
        content["inertia_ratio"] = statistics.mean(ours / other for ours, other in pairs)
    path = RESULTS / f"kmeans-sweep-{options.device.type}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print({key: content.get(key) for key in ("speedup", "inertia_ratio")}, content["ours"]["seconds"])


def blobs(count: int, width: int) -> torch.Tensor:
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(100, width))
    return torch.from_numpy(centres[draw.integers(0, 100, count)] + draw.normal(size=(count, width))).float()


def measure_ours(features: torch.Tensor, counts: range, device: torch.device) -> dict:
    features, began = features.to(device), time.perf_counter()
    inertia = [c.inertia.mean() for c in kmeans_sweep(features, counts, generator(0, "sweep", device=device), RUNS)]
    synchronize(device)
    return {"seconds": time.perf_counter() - began, "inertia": torch.stack(inertia).tolist()}


def measure_theirs(features: np.ndarray, counts: range) -> dict:
    began = time.perf_counter()
    inertia = [
        statistics.mean(KMeans(count, n_init=1, random_state=run).fit(features).inertia_ for run in range(RUNS))
        for count in counts
    ]
    return {"seconds": time.perf_counter() - began, "inertia": inertia}


if __name__ == "__main__":
    main()
