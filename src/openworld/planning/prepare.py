"""All that comes before the first step of a run: features to begin with, the number of classes, the plan."""

import sys
from pathlib import Path
from typing import Any

from openworld.config import FEATURES_RUN
from openworld.data.dataset import Dataset
from openworld.errors import UserError, named
from openworld.methods import METHODS
from openworld.planning.budget import OWN_MINUTES, refuse_bad_length
from openworld.planning.counting import estimate_classes
from openworld.planning.features_first import learn_features, plan_features
from openworld.planning.plan import Opened, Plan, first_plan, open_and_pose, plan_run
from openworld.planning.settings import keyed, recipe_config, with_whole_paths
from openworld.record import ESTIMATE_FILES, RunFolder
from openworld.runtime import Runtime

SHARE_TO_COUNT, SHARE_TO_BEGIN = 0.25, 0.5
"""Of the minutes of a run, those in which features are learnt: only to count classes by them, or to begin with them."""


def prepare_run(
    asked: dict[str, Any], runtime: Runtime, out: Path, minutes: float | None = None, dataset: Dataset | None = None
) -> Plan:
    """`out` is the folder of the run: what tells of the class count goes there, and features that are learnt first.

    `dataset` is the data, where it is in memory. It is opened and posed once, whatever is done with it.
    """
    recipe = recipe_config(asked)
    counts = asked.get("num_classes") == "auto"
    begins = asked.get("start", recipe.training.start) == FEATURES_RUN
    if not begins and asked.get("start_steps"):
        features = named("start", FEATURES_RUN)
        raise UserError(f"{named('start_steps')} is the length of {features}: add that, or leave it out")
    asked = keyed(asked)
    refuse_bad_length(asked, minutes)
    method = asked.get("method", recipe.method)
    if minutes is not None and not METHODS[method].method().makes_steps:
        raise UserError(f"{named('minutes')} does nothing: {method} is fitted once, not trained by steps")
    if not counts:  # what an earlier try estimated is not what is asked for now
        for name in ESTIMATE_FILES:
            (out / name).unlink(missing_ok=True)
    opened = open_and_pose(asked, runtime, dataset)
    if not counts and not begins:
        return plan_run(asked, opened, runtime, minutes)
    if begins and minutes is None and recipe.recipe == "own" and "steps" not in asked:
        minutes = OWN_MINUTES
    for_features = settings_with_features(asked, opened, runtime, begins and minutes is None)
    before = None if minutes is None else (SHARE_TO_BEGIN if begins else SHARE_TO_COUNT) * minutes
    with RunFolder(out).requested(with_whole_paths(asked), minutes):
        if counts:
            estimate = estimate_classes(for_features, runtime, out, minutes=before, opened=opened)
            if not runtime.quiet:
                print(f"{estimate.text()}: {estimate.how_sure()}", file=sys.stderr, flush=True)
            asked = {**asked, "num_classes": estimate.num_classes}
        if begins:
            features = RunFolder(out / FEATURES_RUN)
            if not (counts and features.summary()):  # by which the classes were counted just now
                is_as_long = bool(for_features.get("start_steps"))
                learn_features(plan_features(for_features, opened, runtime, before), out, runtime, is_as_long)
            if minutes is not None and asked.get("start_steps"):  # that say how long, instead of a share of the minutes
                before = min(features.summary()["seconds"] / 60, 0.99 * minutes)
            asked = {**asked, "start_steps": features.config().training.steps}
    left = None if minutes is None else minutes - before
    return plan_run(asked, opened, runtime, left, count_is_estimated=counts)


def settings_with_features(
    asked: dict[str, Any], opened: Opened, runtime: Runtime, has_its_length: bool
) -> dict[str, Any]:
    """What was asked for, and what the run's own plan adds that its features must share.

    That plan is made now, so that mistakes are told of before the features are learnt, not after.
    """
    training = first_plan(asked, opened, runtime)[0].training
    shared = {"network": training.network, "image_size": training.image_size}
    if has_its_length:
        shared["start_steps"] = training.start_steps
    return {**asked, **{name: value for name, value in shared.items() if value is not None}}
