"""Estimate the number of classes with every estimator, on the features of a SimCLR run.

    python benchmarks/class_count.py RUN                          a run of openworld train --method simclr
    python benchmarks/class_count.py FEATURES.npz --summary FILE  its features, computed elsewhere, and its summary.json

An .npz holds `features` (N, D), unit vectors with the labelled samples first, `labels` (N,), the true classes, and
`num_labelled`. The features do not depend on the labels. So the script repeats the estimate by k-nearest neighbours for
other choices of the seen classes and of the labelled samples, and records its mean and standard deviation.
Writes results/estimation-DATA.json.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, commit

from openworld.compute.device import synchronize
from openworld.compute.runtime import make_runtime
from openworld.core.errors import UserError
from openworld.data.problem import load_problem
from openworld.ops.class_count import estimate_by_neighbours, estimate_like_the_paper
from openworld.planning.estimate import features_of_run, judge
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder

OTHER_SPLITS = 40
FEATURE_FACTS = ("method", "steps", "seconds", "device", "seed", "probes", "seen", "novel", "all")
"""Keys of the recorded summary of the run that learnt the features."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="run folder, or .npz of features")
    parser.add_argument("--summary", type=Path, help="summary.json of the run [the one in the run folder]")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-classes", type=int, default=400, help="largest k of k-means [400]")
    parser.add_argument("--curve", type=Path, help="earlier result file: use its k-means curve")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    runtime = make_runtime(options.device, quiet=True)
    summary = json.loads((options.summary or options.source / "summary.json").read_text())
    features, labels, num_labelled = load(options.source, runtime)
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(runtime.device),
        "dataset": summary["dataset"],
        "true_classes": int(labels.max()) + 1,
        "num_seen": int(labels[:num_labelled].max()) + 1,
        "features": {key: summary[key] for key in FEATURE_FACTS},
        "estimates": {},
    }
    began = time.perf_counter()
    try:
        content["estimates"]["neighbours"] = short(judge(features, labels[:num_labelled], "neighbours"), began)
    except UserError as error:
        content["estimates"]["neighbours"] = {"refused": str(error), "seconds": time.perf_counter() - began}
    if options.curve:
        earlier = json.loads(options.curve.read_text())
        content["curve"] = earlier["curve"]
        content["curve_of"] = {key: earlier[key] for key in ("command", "commit", "environment")}
        for name in ("paper", "paper-plain"):
            content["estimates"][name] = earlier["estimates"][name]
    else:
        began = time.perf_counter()
        paper = judge(features, labels[:num_labelled], "paper", options.max_classes)
        synchronize(runtime.device)
        content["estimates"]["paper"] = short(paper, began)
        plain = estimate_like_the_paper(paper.curve, content["num_seen"], reassign=False)
        content["estimates"]["paper-plain"] = short(plain, began)
        content["curve"] = [vars(score) for score in paper.curve]
    if "refused" not in content["estimates"]["neighbours"]:
        content["other_splits"] = other_splits(features, labels, num_labelled / len(labels))
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"estimation-{summary['dataset']}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps({key: content[key] for key in ("estimates", "other_splits") if key in content}, indent=1))


def load(source: Path, runtime) -> tuple[torch.Tensor, torch.Tensor, int]:
    if source.is_dir():
        run = RunFolder.open(source)
        features, data = features_of_run(run, runtime)
        truth = torch.from_numpy(load_problem(run.config(), runtime, run.split()).truths["unlabelled"].labels)
        return features, torch.cat([data.labels, truth.to(data.device)]), len(data.labels)
    arrays = np.load(source)
    features = torch.from_numpy(arrays["features"].astype(np.float32)).to(runtime.device)
    labels = torch.from_numpy(arrays["labels"].astype(np.int64)).to(runtime.device)
    return features, labels, int(arrays["num_labelled"])


def short(estimate, began: float) -> dict:
    return {
        **{key: getattr(estimate, key) for key in ("num_classes", "low", "high", "details")},
        "seconds": time.perf_counter() - began,
    }


def other_splits(features: torch.Tensor, labels: torch.Tensor, fraction_labelled: float) -> dict:
    """Estimate again on other splits and return statistics of the estimates.

    Half of the classes, chosen at random, are seen. Each has as many labelled samples as in the paper's split.
    """
    num_classes, draw = int(labels.max()) + 1, np.random.default_rng(0)
    num_seen, truth = num_classes // 2, labels.cpu().numpy()
    per_class = max(3, round(fraction_labelled * len(labels) / num_seen))
    found = []
    for _ in range(OTHER_SPLITS):
        seen = draw.permutation(num_classes)[:num_seen]
        chosen = np.concatenate([draw.permutation(np.flatnonzero(truth == label))[:per_class] for label in seen])
        order = np.concatenate([chosen, np.setdiff1d(np.arange(len(truth)), chosen)])
        new_labels = torch.from_numpy(np.argsort(seen)[np.searchsorted(np.sort(seen), truth[chosen])])
        estimate = estimate_by_neighbours(features[torch.from_numpy(order)], new_labels.to(features.device))
        found.append((estimate.num_classes, estimate.low, estimate.high))
    counts, low, high = np.array(found, dtype=float).T
    return {
        "splits": OTHER_SPLITS,
        "labelled_per_class": per_class,
        "mean": counts.mean(),
        "std": counts.std(),
        "mean_absolute_error_percent": 100 * np.abs(counts / num_classes - 1).mean(),
        "intervals_that_hold_the_truth": float(((low <= num_classes) & (num_classes <= high)).mean()),
        "mean_width_of_intervals": float((high - low).mean()),
    }


if __name__ == "__main__":
    main()
