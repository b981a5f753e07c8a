"""Everything before the first step of a run: pretrained features, the number of classes, the plan."""

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

FEWEST_MINUTES = 0.1
"""Minutes that are left for training if a backbone took longer than all of them."""
SHARE_TO_COUNT, SHARE_TO_BEGIN = 0.25, 0.5
"""Proportion of the minutes for learning features: only to count the classes, or to start the run from them."""


def prepare_run(
    requested: dict[str, Any], runtime: Runtime, out: Path, minutes: float | None = None, dataset: Dataset | None = None
) -> Plan:
    """Learn features and estimate the number of classes if requested, then return the plan of the run.

    `out` is the run folder. The features and the files of the estimate are written there. `dataset` is the data, if it
    is in memory. The data is opened only once.
    """
    recipe = recipe_config(requested)
    estimates_classes = requested.get("num_classes") == "auto"
    learns_features = requested.get("start", recipe.training.start) == FEATURES_RUN
    if not learns_features and requested.get("start_steps"):
        features = named("start", FEATURES_RUN)
        start_steps = named("start_steps")
        raise UserError(f"{start_steps} works only with {features}; add {features} or leave {start_steps} out")
    requested = with_keys(requested)
    refuse_bad_length(requested, minutes)
    method = requested.get("method", recipe.method)
    if minutes is not None and not METHODS[method].method().makes_steps:
        raise UserError(
            f"{named('minutes')} has no effect: {method} is fitted once, without training steps; leave it out"
        )
    opened = open_problem(requested, runtime, dataset, minutes)
    if minutes is not None:
        minutes = max(minutes - opened.seconds / 60, min(minutes, FEWEST_MINUTES))
    if not estimates_classes and not learns_features:
        plan = plan_run(requested, opened, runtime, minutes)
        delete_estimate(out)
        return plan
    if learns_features and minutes is None and recipe.recipe == "own" and "steps" not in requested:
        minutes = OWN_MINUTES
    for_features = settings_with_features(requested, opened, runtime, learns_features and minutes is None)
    if not estimates_classes:
        delete_estimate(out)
    features_minutes = None if minutes is None else (SHARE_TO_BEGIN if learns_features else SHARE_TO_COUNT) * minutes
    with RunFolder(out).keep_request(with_absolute_paths(requested), minutes):
        if estimates_classes:
            estimate = estimate_classes(for_features, runtime, out, minutes=features_minutes, opened=opened)
            if not runtime.quiet:
                print(f"{estimate.text()}: {estimate.how_sure()}", file=sys.stderr, flush=True)
            requested = {**requested, "num_classes": estimate.num_classes}
        if learns_features:
            features = RunFolder(out / FEATURES_RUN)
            if not (estimates_classes and features.summary()):  # otherwise the estimate has just learnt them
                is_as_long = bool(for_features.get("start_steps"))
                learn_features(plan_features(for_features, opened, runtime, features_minutes), out, runtime, is_as_long)
            if minutes is not None and requested.get("start_steps"):
                # The features took this long instead of their proportion of the minutes
                features_minutes = min(features.summary()["seconds"] / 60, 0.99 * minutes)
            requested = {**requested, "start_steps": features.config().training.steps}
    remaining = None if minutes is None else minutes - features_minutes
    return plan_run(requested, opened, runtime, remaining, count_is_estimated=estimates_classes)


def delete_estimate(out: Path) -> None:
    """Delete the files of an earlier estimate, because the run now gets its number of classes in another way."""
    for name in ESTIMATE_FILES:
        (out / name).unlink(missing_ok=True)


def settings_with_features(
    requested: dict[str, Any], opened: Opened, runtime: Runtime, has_own_length: bool
) -> dict[str, Any]:
    """Return the requested settings, and those from the plan of the run that its features must share.

    The plan is made now, so that errors in it appear before the features are learnt, not after.
    """
    training = draft_plan(requested, opened, runtime)[0].training
    shared = {"network": training.network, "image_size": training.image_size}
    if has_own_length:
        shared["start_steps"] = training.start_steps
    return {**requested, **{name: value for name, value in shared.items() if value is not None}}
