"""All that comes before the first step of a run: features to begin with, the number of classes, the plan."""

import sys
from pathlib import Path
from typing import Any

from openworld.compute.runtime import Runtime
from openworld.core.config import FEATURES_RUN
from openworld.core.errors import UserError, named
from openworld.data.dataset import Dataset
from openworld.methods import METHODS
from openworld.planning.budget import OWN_MINUTES, refuse_bad_length
from openworld.planning.estimate import estimate_classes
from openworld.planning.plan import Opened, Plan, draft_plan, open_problem, plan_run
from openworld.planning.pretraining import learn_features, plan_features
from openworld.planning.settings import recipe_config, with_absolute_paths, with_keys
from openworld.runs.folder import ESTIMATE_FILES, RunFolder

SHARE_TO_COUNT, SHARE_TO_BEGIN = 0.25, 0.5
"""Of the minutes of a run, those in which features are learnt: only to count classes by them, or to begin with them."""


def prepare_run(
    requested: dict[str, Any], runtime: Runtime, out: Path, minutes: float | None = None, dataset: Dataset | None = None
) -> Plan:
    """`out` is the folder of the run: what tells of the class count goes there, and features that are learnt first.

    `dataset` is the data, where it is in memory. It is opened and posed once, whatever is done with it.
    """
    recipe = recipe_config(requested)
    counts = requested.get("num_classes") == "auto"
    begins = requested.get("start", recipe.training.start) == FEATURES_RUN
    if not begins and requested.get("start_steps"):
        features = named("start", FEATURES_RUN)
        raise UserError(f"{named('start_steps')} is the length of {features}: add that, or leave it out")
    requested = with_keys(requested)
    refuse_bad_length(requested, minutes)
    method = requested.get("method", recipe.method)
    if minutes is not None and not METHODS[method].method().makes_steps:
        raise UserError(f"{named('minutes')} does nothing: {method} is fitted once, not trained by steps")
    if not counts:  # what an earlier try estimated is not what is asked for now
        for name in ESTIMATE_FILES:
            (out / name).unlink(missing_ok=True)
    opened = open_problem(requested, runtime, dataset)
    if not counts and not begins:
        return plan_run(requested, opened, runtime, minutes)
    if begins and minutes is None and recipe.recipe == "own" and "steps" not in requested:
        minutes = OWN_MINUTES
    for_features = settings_with_features(requested, opened, runtime, begins and minutes is None)
    before = None if minutes is None else (SHARE_TO_BEGIN if begins else SHARE_TO_COUNT) * minutes
    with RunFolder(out).keep_request(with_absolute_paths(requested), minutes):
        if counts:
            estimate = estimate_classes(for_features, runtime, out, minutes=before, opened=opened)
            if not runtime.quiet:
                print(f"{estimate.text()}: {estimate.how_sure()}", file=sys.stderr, flush=True)
            requested = {**requested, "num_classes": estimate.num_classes}
        if begins:
            features = RunFolder(out / FEATURES_RUN)
            if not (counts and features.summary()):  # by which the classes were counted just now
                is_as_long = bool(for_features.get("start_steps"))
                learn_features(plan_features(for_features, opened, runtime, before), out, runtime, is_as_long)
            if minutes is not None and requested.get(
                "start_steps"
            ):  # that say how long, instead of a share of the minutes
                before = min(features.summary()["seconds"] / 60, 0.99 * minutes)
            requested = {**requested, "start_steps": features.config().training.steps}
    left = None if minutes is None else minutes - before
    return plan_run(requested, opened, runtime, left, count_is_estimated=counts)


def settings_with_features(
    requested: dict[str, Any], opened: Opened, runtime: Runtime, has_its_length: bool
) -> dict[str, Any]:
    """What was asked for, and what the run's own plan adds that its features must share.

    That plan is made now, so that mistakes are told of before the features are learnt, not after.
    """
    training = draft_plan(requested, opened, runtime)[0].training
    shared = {"network": training.network, "image_size": training.image_size}
    if has_its_length:
        shared["start_steps"] = training.start_steps
    return {**requested, **{name: value for name, value in shared.items() if value is not None}}
