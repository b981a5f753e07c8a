"""From data to the number of its classes: features without labels, an estimate, the files that tell of it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openworld.compute.runtime import Runtime
from openworld.core.config import ESTIMATORS
from openworld.core.errors import UserError, named
from openworld.core.progress import CountDisplay
from openworld.data.problem import OpenWorld, TrainingSet, load_problem
from openworld.nets.features import extract
from openworld.ops.class_count import (
    Estimate,
    estimate_by_neighbours,
    estimate_like_the_paper,
    refuse_few_labels,
    score_counts,
)
from openworld.ops.rng import generator
from openworld.planning.plan import Opened, open_problem
from openworld.planning.pretraining import learn_features, plan_features, settings_for_features
from openworld.runs.evaluation import load_average
from openworld.runs.folder import RunFolder

MOST_CLASSES = 400
DRAWN_SAMPLES, DRAWN_COUNTS = 10_000, 40
"""For a curve that is only looked at."""


def estimate_classes(
    requested: dict[str, Any],
    runtime: Runtime,
    out: Path,
    estimator: str = "neighbours",
    max_classes: int | None = None,
    minutes: float | None = None,
    opened: Opened | None = None,
) -> Estimate:
    """The number of classes of the data that the settings name; estimate.json and estimate.png go into `out`.

    `opened` is that data, where it has been opened already.
    """
    if estimator not in ESTIMATORS:
        raise UserError(f"{named('estimator', estimator)}: there are {', '.join(ESTIMATORS)}")
    features, data, origin = find_features(requested, runtime, out, estimator, max_classes, minutes, opened)
    estimate = judge(features, data.labels, estimator, max_classes, requested.get("seed", 0), runtime.quiet)
    estimate = replace(estimate, details={**estimate.details, "features": origin, "num_features": features.shape[1]})
    folder = RunFolder(out)
    out.mkdir(parents=True, exist_ok=True)
    folder.write_json("estimate.json", estimate.to_json())
    from openworld.planning.estimate_plot import draw_class_count

    draw_class_count(estimate, out / "estimate.png")
    return estimate


def judge(
    features: Tensor, labels: Tensor, estimator: str, max_classes: int | None = None, seed: int = 0, quiet: bool = True
) -> Estimate:
    """The estimate from (N, D) features, the labelled samples first, with the curve of k-means over k beside it."""
    num_seen, num_samples = int(labels.max()) + 1, len(features)
    most = largest_count(max_classes, num_seen, num_samples)
    estimate, step = None, 1
    if estimator == "neighbours":
        estimate = estimate_by_neighbours(features, labels)
        # the curve is only looked at: all counts of all samples would take hours on a CPU
        most = max(min(most, 3 * estimate.num_classes), num_seen + 1)
        step, stride = -(-(most - num_seen) // DRAWN_COUNTS), -(-num_samples // DRAWN_SAMPLES)
        features = torch.cat([part[::stride] for part in features.tensor_split([len(labels)])])
        labels = labels[::stride]
    counts = range(num_seen, most + 1, step)
    scores = []
    with CountDisplay("clustering", quiet, " class counts") as display:
        for score in score_counts(features, labels, counts, generator(seed, "curve", device=features.device)):
            scores.append(score)
            display.tell(len(scores), len(counts))
    if estimate:
        return replace(estimate, curve=tuple(scores))
    return replace(estimate_like_the_paper(scores, num_seen, estimator == "paper"), estimator=estimator)


def largest_count(max_classes: int | None, num_seen: int, num_samples: int) -> int:
    if max_classes is None:
        return min(max(MOST_CLASSES, 2 * num_seen), num_samples)
    if not num_seen < max_classes <= num_samples:
        told = named("max_classes", max_classes)
        raise UserError(f"{told}: there are {num_seen} seen classes and {num_samples:,} samples")
    return max_classes


def find_features(
    requested: dict[str, Any],
    runtime: Runtime,
    out: Path,
    estimator: str,
    max_classes: int | None,
    minutes: float | None,
    opened: Opened | None,
) -> tuple[Tensor, TrainingSet, str]:
    """(N, D), labelled samples first: those of a run, those given, or those that SimCLR learns now."""
    data_name = str(requested.get("data", "digits"))
    if opened is None and RunFolder(Path(data_name)).exists:
        run = RunFolder(Path(data_name))
        idle = [name for name in requested if name not in ("data", "seed")]
        if idle or minutes is not None:
            setting = (idle or ["minutes"])[0]
            raise UserError(f"{named(setting)}: {run.path} is a run, whose data and features are what they are")
        return *features_of_run(run, runtime), f"the run {run.path} ({run.config().method})"
    opened = opened or open_problem(settings_for_features(requested), runtime)
    if opened.dataset.has_features:
        if minutes is not None:
            holds = f"{opened.dataset.name} holds some"
            raise UserError(f"{named('minutes')} is for learning features, and {holds}: leave it out")
        data = opened.world.training
        return standardised(torch.cat([data.labelled.data, data.unlabelled.data])), data, "those given"
    plan = plan_features(requested, opened, runtime, minutes)
    data = plan.world.training
    largest_count(max_classes, data.num_seen, len(data.labelled) + len(data.unlabelled))  # or refuse, before the work
    if estimator == "neighbours":
        refuse_few_labels(data.labels)  # likewise
    run = learn_features(plan, out, runtime, is_as_long=bool(requested.get("start_steps")))
    return *features_of_run(run, runtime, plan.world), f"SimCLR, {run.config().training.steps} steps"


def features_of_run(run: RunFolder, runtime: Runtime, world: OpenWorld | None = None) -> tuple[Tensor, TrainingSet]:
    """`world` is the problem of the run, where it is at hand already."""

    def warn(message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)

    config = run.config()
    if config.options.method().uses_labels or config.training.start:
        warn(f"{run.path} was trained on labels, or began with another run: that may mislead an estimate by neighbours")
    data = (world or load_problem(config, runtime, run.split())).training
    network, _ = load_average(run, config, runtime.device, warn)
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
