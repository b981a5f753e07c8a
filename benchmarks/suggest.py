"""Compare labels for samples that `openworld suggest` chooses with labels for as many random samples.

    python benchmarks/suggest.py digits --seeds 0 1 2 3 4
    python benchmarks/suggest.py FEATURES.npz --name cifar10-features --seeds 0 1 2 3 4

A seed decides which half of the classes is seen, which few labels are given, the test part and the initial weights.
The script trains a network with these labels and lets it choose samples. The chosen samples get their true labels. Then
the script trains a network from scratch with the same seed. An .npz holds `features` (N, D) and `labels` (N,).
Writes results/suggest-NAME.json: accuracy on the test part over all classes (gcd: one matching), for suggested and for
random samples, and their difference seed by seed.
"""

import argparse
import json
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, commit, spread

from openworld.compute.runtime import Runtime, make_runtime
from openworld.core.config import Config
from openworld.core.config_files import write_toml
from openworld.core.fields import replace
from openworld.core.recipes import digits, own
from openworld.data.benchmarks import read_benchmark
from openworld.data.dataset import Dataset
from openworld.data.own import from_arrays
from openworld.data.problem import load_problem
from openworld.results.suggest import suggest
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder
from openworld.training.loop import train

NUMBERS = (20, 50)
"""Numbers of labels to add."""
SHARED = {"num_classes": 10, "prior": "uniform", "uncertainty_views": 4, "batch_labelled": 32}
SHORT_RUNS = {
    "images": {**SHARED, "batch_unlabelled": 64, "steps": 200, "epoch_steps": 40},
    "features": {
        **SHARED,
        "batch_unlabelled": 96,
        "steps": 150,
        "epoch_steps": 75,
        "network": "mlp",
        "augment": "features",
    },
}


@dataclass(frozen=True)
class Task:
    """Samples with all their true classes. Training gets only a few of them as labels."""

    samples: np.ndarray
    truth: np.ndarray
    labels: np.ndarray
    """-1 for samples whose class is hidden from training."""
    test: tuple[np.ndarray, np.ndarray]
    config: Config

    def with_labels(self, positions: np.ndarray) -> Dataset:
        labels = self.labels.copy()
        labels[positions] = self.truth[positions]
        return from_arrays(self.samples, labels, *self.test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="digits, or an .npz of features")
    parser.add_argument("--name", default="digits", help="NAME of the result file")
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="random seeds")
    parser.add_argument("--per-class", type=int, default=5, help="initial labels of each seen class [5]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runtime = make_runtime("cpu", quiet=True)
    runs = []
    for seed in options.seeds:
        task = pose_task(options.source, seed, options.per_class)
        runs.append({"seed": seed, **compare(task, runtime)})
        print(json.dumps(runs[-1]), flush=True)
        record(options, task.config, runtime, runs)


def pose_task(source: str, seed: int, per_class: int) -> Task:
    """Return a task with some samples of a source. The first half of its classes, in a random order, is seen."""
    draw = np.random.default_rng(seed)
    if source == "digits":
        part = read_benchmark("digits", Path()).train
        samples, truth, size, num_test = part.content, part.labels, len(part), len(part) // 3
        config = replace(digits("memory:digits"), SHORT_RUNS["images"])
    else:
        arrays = np.load(source)
        samples, truth, size, num_test = arrays["features"], arrays["labels"], 5000, 2000
        config = replace(own("memory:features"), SHORT_RUNS["features"])
    chosen = draw.permutation(len(samples))[:size]
    samples, truth = samples[chosen], draw.permutation(truth.max() + 1)[truth[chosen]]
    train_samples, train_truth = samples[num_test:], truth[num_test:]
    labels = np.full_like(train_truth, -1)
    for known in range((truth.max() + 1) // 2):
        labels[np.flatnonzero(train_truth == known)[:per_class]] = known
    return Task(
        train_samples, train_truth, labels, (samples[:num_test], truth[:num_test]), replace(config, {"seed": seed})
    )


def compare(task: Task, runtime: Runtime) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        dataset = task.with_labels(np.array([], int))
        before = train_and_evaluate(task.config, dataset, run, runtime)
        found = suggest(run, dataset, max(NUMBERS), runtime, print)
    suggested = np.array([chosen.sample for chosen in found.chosen])
    at_random = np.random.default_rng([task.config.seed, 1]).permutation(np.flatnonzero(task.labels < 0))
    result = {"before": before}
    for way, order in (("suggested", suggested), ("random", at_random)):
        for number in NUMBERS:
            with tempfile.TemporaryDirectory() as folder:
                accuracy = train_and_evaluate(
                    task.config, task.with_labels(order[:number]), RunFolder(Path(folder) / "run"), runtime
                )
            classes = len(set(task.truth[order[:number]]))
            result[f"{way}-{number}"] = {"all": accuracy, "classes_among_the_new_labels": classes}
    return result


def train_and_evaluate(config: Config, dataset: Dataset, run: RunFolder, runtime: Runtime) -> float:
    summary = train(config, run, runtime, load_problem(config, runtime, dataset=dataset))
    return summary["protocols"]["gcd"]["all"]


def record(options: argparse.Namespace, config: Config, runtime: Runtime, runs: list[dict]) -> None:
    def spread_of(choice: str) -> dict[str, float]:
        return spread([run[choice]["all"] for run in runs])

    def difference(number: int) -> dict[str, float]:
        return spread([run[f"suggested-{number}"]["all"] - run[f"random-{number}"]["all"] for run in runs])

    content = {
        "name": f"suggest-{options.name}",
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(runtime.device),
        "threads": torch.get_num_threads(),
        "config": write_toml(config),
        "protocol": "gcd",
        "labels_to_begin_with": options.per_class * 5,
        "seeds": [run["seed"] for run in runs],
        "before": spread([run["before"] for run in runs]),
        **{way: spread_of(way) for number in NUMBERS for way in (f"suggested-{number}", f"random-{number}")},
        **{f"suggested-less-random-{number}": difference(number) for number in NUMBERS},
        "runs": runs,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / f"suggest-{options.name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
