"""Estimate the number of classes of a data set: learn features without labels, estimate, write the result to files."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openworld.compute.runtime import Runtime
from openworld.core.config import ESTIMATORS
from openworld.core.errors import UserError, named
from openworld.core.progress import CountDisplay
from openworld.data.problem import OpenWorld, TrainingSet
from openworld.nets.bodies import Adapter
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
from openworld.planning.settings import FEWEST_FEATURES
from openworld.runs.evaluation import load_average
from openworld.runs.folder import RunFolder
from openworld.runs.world import open_world

MOST_CLASSES = 400
DRAWN_SAMPLES, DRAWN_COUNTS = 10_000, 40
"""Limits for a k-means curve that is only plotted."""


def estimate_classes(
    requested: dict[str, Any],
    runtime: Runtime,
    out: Path,
    estimator: str = "neighbours",
    max_classes: int | None = None,
    minutes: float | None = None,
    opened: Opened | None = None,
) -> Estimate:
    """Estimate the number of classes of the requested data, and write estimate.json and estimate.png to `out`.

    `opened` is that data, if the caller has opened it already.
    """
    if estimator not in ESTIMATORS:
        raise UserError(f"{named('estimator', estimator)}: no such estimator (choose from {', '.join(ESTIMATORS)})")
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
    """Return the estimate from (N, D) features, labelled samples first, together with the curve of k-means over k."""
    num_seen, num_samples = int(labels.max()) + 1, len(features)
    most = largest_count(max_classes, num_seen, num_samples)
    estimate, step = None, 1
    if estimator == "neighbours":
        estimate = estimate_by_neighbours(features, labels)
        # The curve is only plotted here. Computing it for all counts and samples would take hours on a CPU
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
    """Return the largest number of classes to try, or raise a UserError if the requested one is out of range."""
    if max_classes is None:
        return min(max(MOST_CLASSES, 2 * num_seen), num_samples)
    if not num_seen < max_classes <= num_samples:
        limits = f"more than {num_seen} (seen classes) and at most {num_samples:,} (samples)"
        raise UserError(f"{named('max_classes', max_classes)} is out of range; it must be {limits}")
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
    """Return (N, D) features, labelled samples first, the training set, and where the features come from.

    They come from a run, from the data itself, or from SimCLR, which is trained now.
    """
    data_name = str(requested.get("data", "digits"))
    if opened is None and RunFolder(Path(data_name)).exists:
        run = RunFolder(Path(data_name))
        unused = [name for name in requested if name not in ("data", "seed")]
        if unused or minutes is not None:
            setting = (unused or ["minutes"])[0]
            raise UserError(f"{named(setting)} cannot change the data or features of the run {run.path}; leave it out")
        return *features_of_run(run, runtime), f"the run {run.path} ({run.config().method})"
    opened = opened or open_problem(settings_for_features(requested), runtime, views=0)
    if not opened.world.training.has_images:
        data, is_own = opened.world.training, opened.dataset.has_features
        if minutes is not None:
            reason = f"{opened.dataset.name} already contains features" if is_own else "a backbone gives them here"
            raise UserError(f"{named('minutes')} sets how long to learn features, but {reason}; leave it out")
        features = torch.cat([data.family.plain(part.data) for part in (data.labelled, data.unlabelled)])
        return comparable(features), data, "from the data" if is_own else "of the backbone"
    plan = plan_features(requested, opened, runtime, minutes)
    data = plan.world.training
    # Both checks raise an error before the long training of features, not after it
    largest_count(max_classes, data.num_seen, len(data.labelled) + len(data.unlabelled))
    if estimator == "neighbours":
        refuse_few_labels(data.labels)
    run = learn_features(plan, out, runtime, is_as_long=bool(requested.get("start_steps")))
    return *features_of_run(run, runtime, plan.world), f"SimCLR, {run.config().training.steps} steps"


def features_of_run(run: RunFolder, runtime: Runtime, world: OpenWorld | None = None) -> tuple[Tensor, TrainingSet]:
    """Return the features and training set of a run. `world` is the problem of the run, if it is loaded already."""

    def warn(message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)

    config = run.config()
    if config.options.method().uses_labels or config.training.start:
        warn(f"{run.path} was trained on labels or started from another run; estimates by neighbours may be wrong")
    data = (world or open_world(config, runtime, run)).training
    network, _ = load_average(run, config, runtime.device, warn)
    return torch.cat([extract(network, part, data.family) for part in (data.labelled, data.unlabelled)]), data


def comparable(features_ND: Tensor) -> Tensor:
    """Scale features so that samples of one class are close to each other.

    Many columns come from a network. They become what the adapter sees, without the mean that all samples share
    (docs/findings.md#finding-auto). Few columns are measurements in different units. They are standardised.
    """
    if features_ND.shape[1] < FEWEST_FEATURES:
        return standardised(features_ND)
    units_ND = Adapter.inputs(features_ND)
    return F.normalize(units_ND - units_ND.mean(dim=0))


def standardised(features_ND: Tensor) -> Tensor:
    """Scale the columns to mean 0 and standard deviation 1. Leave out constant columns."""
    mean, deviation = features_ND.mean(dim=0), features_ND.std(dim=0)
    varies = deviation > 1e-6 * (mean.abs() + 1e-30)
    if not varies.all():
        constant = f"{int((~varies).sum())} of {len(varies)} features"
        print(f"warning: ignoring {constant}, because they are constant", file=sys.stderr)
    return ((features_ND - mean) / deviation)[:, varies]
