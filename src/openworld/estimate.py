"""From data to the number of its classes: features without labels, an estimate, the files that tell of it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openworld.class_count import Estimate, estimate_as_in_the_paper, estimate_by_neighbours, score_counts
from openworld.config import Config, flatten
from openworld.data.dataset import Dataset
from openworld.data.problem import TrainingSet, pose
from openworld.errors import UserError
from openworld.evaluate import load_average
from openworld.features import extract
from openworld.plan import plan_run
from openworld.plots import draw_class_count
from openworld.progress import CountDisplay
from openworld.record import RunFolder
from openworld.rng import generator
from openworld.runtime import Runtime
from openworld.train import train

ESTIMATORS = ("neighbours", "paper", "paper-plain")
"""The last one is the paper's without its reassignment of samples."""
MOST_CLASSES = 400
SHARE_OF_TIME = 0.25
"""Of the minutes of a run, those in which features for the estimate are trained."""
SIMCLR = "simclr"
"""The folder of that run, within the one that asks for the estimate."""
DRAWN_SAMPLES, DRAWN_COUNTS = 10_000, 40
"""For a curve that is only looked at."""
SETTINGS = ("data", "seed", "on_bad_image", "novel", "labelled", "imbalance", "image_size", "network")
"""What a run and the estimate for it have in common; the others are for the run's own method."""


def estimate_classes(
    asked: dict[str, Any],
    runtime: Runtime,
    out: Path,
    estimator: str = "neighbours",
    max_classes: int | None = None,
    minutes: float | None = None,
    dataset: Dataset | None = None,
) -> Estimate:
    """The number of classes of the data that the settings name; estimate.json and estimate.png go into `out`."""
    if estimator not in ESTIMATORS:
        raise UserError(f"--estimator {estimator}: there are {', '.join(ESTIMATORS)}")
    features, data, origin = find_features(asked, runtime, out, minutes, dataset)
    estimate = judge(features, data.labels, estimator, max_classes, asked.get("seed", 0), runtime.quiet)
    estimate = replace(estimate, details={**estimate.details, "features": origin, "num_features": features.shape[1]})
    folder = RunFolder(out)
    out.mkdir(parents=True, exist_ok=True)
    folder.write_json("estimate.json", estimate.to_json())
    draw_class_count(estimate, out / "estimate.png")
    return estimate


def judge(
    features: Tensor, labels: Tensor, estimator: str, max_classes: int | None = None, seed: int = 0, quiet: bool = True
) -> Estimate:
    """The estimate from (N, D) features, the labelled samples first, with the curve of k-means over k beside it."""
    num_seen, num_samples = int(labels.max()) + 1, len(features)
    most = min(MOST_CLASSES, num_samples) if max_classes is None else max_classes
    if most <= num_seen:
        raise UserError(f"--max-classes {most}: there are {num_seen} seen classes already")
    estimate = estimate_by_neighbours(features, labels) if estimator == "neighbours" else None
    if estimate:  # all counts of all samples take hours on a CPU, and the estimate does not need them
        most = max(min(most, 3 * estimate.num_classes), num_seen + 1)
        step = -(-(most - num_seen) // DRAWN_COUNTS)
        kept = max(DRAWN_SAMPLES, len(labels))
        source = generator(seed, "curve-samples")
        chosen = len(labels) + torch.randperm(num_samples - len(labels), generator=source)[: kept - len(labels)]
        features = torch.cat([features[: len(labels)], features[chosen.to(features.device)]])
    counts = range(num_seen, most + 1, step if estimate else 1)
    scores = []
    with CountDisplay("clustering", quiet, " class counts") as display:
        for score in score_counts(features, labels, counts, generator(seed, "curve", device=features.device)):
            scores.append(score)
            display.tell(len(scores), len(counts))
    if estimate:
        return replace(estimate, curve=tuple(scores))
    return estimate_as_in_the_paper(scores, num_seen, reassign=estimator == "paper")


def find_features(
    asked: dict[str, Any], runtime: Runtime, out: Path, minutes: float | None, dataset: Dataset | None
) -> tuple[Tensor, TrainingSet, str]:
    """(N, D), labelled samples first: those of a run, those given, or those that SimCLR learns now."""
    data_name = str(asked.get("data", "digits"))
    if dataset is None and RunFolder(Path(data_name)).exists:
        run = RunFolder(Path(data_name))
        return *features_of_run(run, runtime), f"the run {run.path} ({run.config().method})"
    settings = {name: value for name, value in asked.items() if name in SETTINGS}
    plan = plan_run({**settings, "method": "simclr"}, runtime, minutes, dataset)
    data = plan.world.training
    if len(data.unlabelled.shape) == 1:
        return standardised(torch.cat([data.labelled.data, data.unlabelled.data])), data, "those given"
    run = RunFolder(out / SIMCLR)
    config, world = plan.config, plan.world
    if run.exists:  # what was begun goes on as it began
        config, world = same_problem(run, config), None
    if not run.summary():
        if not runtime.quiet:
            length = f"{config.training.steps:,} steps in {run.path}"
            print(f"learning features, without labels, by which classes are counted: {length}", file=sys.stderr)
        train(config, run, runtime, world)
    return *features_of_run(run, runtime), f"SimCLR, {config.training.steps} steps"


def same_problem(run: RunFolder, config: Config) -> Config:
    """The configuration of features that were begun before; they must be of the same data."""
    begun = run.config()
    for name in SETTINGS:
        before, now = flatten(begun)[name], flatten(config)[name]
        if before != now:
            raise UserError(f"{run.path} holds features for {name} = {before}, not {now}: choose another --out")
    return begun


def features_of_run(run: RunFolder, runtime: Runtime) -> tuple[Tensor, TrainingSet]:
    def warn(message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)

    config = run.config()
    if config.method != "simclr":
        warn(f"{run.path} was trained on the labels, which misleads an estimate by neighbours")
    data = pose(config, runtime, run.split()).training
    network, _ = load_average(run, config, data, warn)
    return torch.cat([extract(network, part, data.family) for part in (data.labelled, data.unlabelled)]), data


def standardised(features_ND: Tensor) -> Tensor:
    """Columns of mean 0 and deviation 1; those that never change are left out."""
    middle, spread = features_ND.mean(dim=0), features_ND.std(dim=0)
    changes = spread > 1e-6 * (middle.abs() + 1e-30)
    if not changes.any():
        raise UserError("all features are constant: they tell nothing about classes")
    if not changes.all():
        print(f"warning: {int((~changes).sum())} of {len(changes)} features are constant: left out", file=sys.stderr)
    return ((features_ND - middle) / spread)[:, changes]


# For training --------------------------------------------------------------------------------------------------


def settle_class_count(
    asked: dict[str, Any], runtime: Runtime, out: Path, minutes: float | None, dataset: Dataset | None = None
) -> tuple[dict[str, Any], float | None]:
    """`num_classes` as a number, estimated where it is to be; and the minutes that are left to train."""
    if asked.get("num_classes") != "auto":
        return asked, minutes
    share = None if minutes is None else SHARE_OF_TIME * minutes
    estimate = estimate_classes(asked, runtime, out, minutes=share, dataset=dataset)
    if not runtime.quiet:
        print(f"{estimate.text()}: {estimate.how_sure()}", file=sys.stderr, flush=True)
    left = None if minutes is None else minutes - share
    return {**asked, "num_classes": estimate.num_classes}, left
