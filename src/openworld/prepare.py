"""All that comes before the first step of a run: features to begin with, the number of classes, the plan."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from openworld.config import Config
from openworld.data.dataset import Dataset
from openworld.data.problem import is_file_of_shares
from openworld.errors import UserError
from openworld.estimate import estimate_classes
from openworld.learner import Learner
from openworld.plan import OWN_MINUTES, Plan, plan_run, recipe_config, refuse_bad_length, with_whole_paths
from openworld.pretrain import learn_features, plan_features
from openworld.record import ESTIMATE_FILES, FEATURES_RUN, RunFolder
from openworld.runtime import Runtime

SHARE_TO_COUNT, SHARE_TO_BEGIN = 0.25, 0.5
"""Of the minutes of a run, those in which features are learnt: only to count classes by them, or to begin with them."""


def prepare_run(
    asked: dict[str, Any], runtime: Runtime, out: Path, minutes: float | None = None, dataset: Dataset | None = None
) -> Plan:
    """`out` is the folder of the run: what tells of the class count goes there, and features that are learnt first."""
    counts = asked.get("num_classes") == "auto"
    recipe = recipe_config(asked, in_memory=dataset is not None)
    begins = asked.get("start", recipe.training.start) == FEATURES_RUN
    if not begins and asked.get("start_steps"):
        raise UserError("--start-steps is the length of --start simclr: add that, or leave it out")
    if not counts:  # what an earlier try estimated is not what is asked for now
        for name in ESTIMATE_FILES:
            (out / name).unlink(missing_ok=True)
    if not counts and not begins:
        return plan_run(asked, runtime, minutes, dataset)
    refuse_bad_length(asked, minutes)
    if begins and minutes is None and recipe.recipe == "own" and "steps" not in asked:
        minutes = OWN_MINUTES
    training = refused_or_settled(asked, counts, runtime, dataset).training
    shared = {"network": training.network, "image_size": training.image_size}
    if begins and minutes is None:
        shared["start_steps"] = training.start_steps
    for_features = {**asked, **{name: value for name, value in shared.items() if value is not None}}
    before = None if minutes is None else (SHARE_TO_BEGIN if begins else SHARE_TO_COUNT) * minutes
    in_memory = dataset is not None  # which could not be found again
    with nullcontext() if in_memory else RunFolder(out).requested(with_whole_paths(asked), minutes):
        if counts:
            estimate = estimate_classes(for_features, runtime, out, minutes=before, dataset=dataset)
            if not runtime.quiet:
                print(f"{estimate.text()}: {estimate.how_sure()}", file=sys.stderr, flush=True)
            asked = {**asked, "num_classes": estimate.num_classes}
        if begins:
            features = RunFolder(out / FEATURES_RUN)
            if not (counts and features.summary()):  # by which the classes were counted just now
                is_as_long = bool(for_features.get("start_steps"))
                learn_features(plan_features(for_features, runtime, before, dataset), out, runtime, is_as_long)
            if minutes is not None and asked.get("start_steps"):  # that say how long, instead of a share of the minutes
                before = min(features.summary()["seconds"] / 60, 0.99 * minutes)
            asked = {**asked, "start_steps": features.config().training.steps}
    left = None if minutes is None else minutes - before
    return plan_run(asked, runtime, left, dataset, count_is_estimated=counts)


def refused_or_settled(asked: dict[str, Any], counts: bool, runtime: Runtime, dataset: Dataset | None) -> Config:
    """The configuration, as far as it is known; mistakes are told of now, not after the features are learnt."""
    unknown = []
    if counts:  # what hangs on the number of classes cannot be told yet
        unknown = ["num_classes", *(["prior"] if is_file_of_shares(asked.get("prior")) else [])]
    known = {name: value for name, value in asked.items() if name not in unknown}
    plan = plan_run({"steps": 1, **known}, runtime, dataset=dataset)
    Learner(plan.config, plan.world.training, runtime)
    return plan.config
