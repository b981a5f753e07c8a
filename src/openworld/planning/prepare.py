"""Everything before the first step of a run: pretrained features, the number of classes, the plan."""

import sys
import time
from pathlib import Path
from typing import Any

from openworld.compute.runtime import Runtime
from openworld.core.config import CLUSTERS, FEATURES_RUN
from openworld.core.errors import CannotEstimate, UserError, named
from openworld.data.dataset import Dataset
from openworld.methods import METHODS
from openworld.planning.budget import OWN_MINUTES, refuse_bad_length
from openworld.planning.estimate import estimate_classes
from openworld.planning.plan import Opened, Plan, draft_plan, open_problem, plan_run
from openworld.planning.pretraining import learn_features, plan_features, settings_for_features
from openworld.planning.settings import (
    names_all_classes,
    recipe_config,
    resolve_settings,
    with_absolute_paths,
    with_keys,
)
from openworld.runs.folder import ESTIMATE_FILES, RunFolder

FEWEST_MINUTES = 0.1
"""Minutes that are left for training if the features took longer than all of them."""
FEW_LABELS = 10
"""Fewer labels for each seen class cannot show that there is no novel class, if the estimate has no interval."""
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
    if requested.get("start", recipe.training.start) != FEATURES_RUN and requested.get("start_steps"):
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
    opened = open_problem(requested, runtime, dataset)
    if minutes is not None:
        minutes = max(minutes - opened.seconds / 60, min(minutes, FEWEST_MINUTES))
    start = resolve_settings(requested, opened.dataset, runtime.device).training.start
    learns_features = start == FEATURES_RUN
    estimates_classes = requested.get("num_classes") == "auto" or is_worth_estimating(requested, opened, start)
    if not estimates_classes and not learns_features:
        plan = plan_run(requested, opened, runtime, minutes)
        delete_estimate(out)
        return plan
    if learns_features and minutes is None and recipe.recipe == "own" and "steps" not in requested:
        minutes = OWN_MINUTES
    for_features = settings_with_features(requested, opened, runtime, learns_features and minutes is None)
    if not estimates_classes:
        delete_estimate(out)
    spent, source, began = None, None, time.monotonic()
    if minutes is not None and (learns_features or not has_features(opened)):
        spent = (SHARE_TO_BEGIN if learns_features else SHARE_TO_COUNT) * minutes
    with RunFolder(out).keep_request(with_absolute_paths(requested), minutes):
        if estimates_classes:
            requested, source = with_estimate(requested, for_features, opened, runtime, out, spent)
        if learns_features:
            features = RunFolder(out / FEATURES_RUN)
            if not (estimates_classes and features.summary()):  # otherwise the estimate has just learnt them
                is_as_long = bool(for_features.get("start_steps"))
                learn_features(plan_features(for_features, opened, runtime, spent), out, runtime, is_as_long)
            if minutes is not None and requested.get("start_steps"):
                # The features took this long instead of their proportion of the minutes
                spent = min(features.summary()["seconds"] / 60, 0.99 * minutes)
            requested = {**requested, "start_steps": features.config().training.steps}
    if minutes is not None:
        spent = (time.monotonic() - began) / 60 if spent is None else spent
        minutes = max(minutes - spent, min(minutes, FEWEST_MINUTES))
    return plan_run(requested, opened, runtime, minutes, source)


def has_features(opened: Opened) -> bool:
    """Return whether good features are there without training: in the data, or by a backbone."""
    return opened.has_backbone or opened.dataset.has_features


def is_worth_estimating(requested: dict[str, Any], opened: Opened, start: str | None) -> bool:
    """Return whether to estimate the number of classes unasked: nothing else tells it, and the features are good.

    Then it costs little accuracy (docs/findings.md#finding-auto).
    """
    is_unknown = "num_classes" not in requested and not names_all_classes(opened.dataset)
    return is_unknown and has_features(opened) and start == CLUSTERS


def with_estimate(
    requested: dict[str, Any],
    for_features: dict[str, Any],
    opened: Opened,
    runtime: Runtime,
    out: Path,
    minutes: float | None,
) -> tuple[dict[str, Any], str | None]:
    """Return the requested settings with the estimated number of classes, and where that number comes from.

    If it cannot be estimated and the user did not ask for it, a number is assumed.
    """
    if has_features(opened):
        minutes = None
        if opened.world.training.has_images:  # the backbone will be trained, but has not been
            opened = open_problem(settings_for_features(requested), runtime, opened.dataset, views=0)
    try:
        estimate = estimate_classes(for_features, runtime, out, minutes=minutes, opened=opened)
    except CannotEstimate as error:
        if requested.get("num_classes") == "auto":
            raise
        delete_estimate(out)
        return requested, f"assumed: as many novel classes as seen classes; {error}"
    data = opened.world.training
    has_few_labels = len(data.labels) < FEW_LABELS * data.num_seen
    is_blind = estimate.high is None and estimate.num_classes == data.num_seen and has_few_labels
    if is_blind and requested.get("num_classes") != "auto":
        delete_estimate(out)
        return requested, "assumed: as many novel classes as seen classes; there are too few labels to estimate it"
    if not runtime.quiet:
        print(f"{estimate.text()}: {estimate.how_sure()}", file=sys.stderr, flush=True)
    return {**requested, "num_classes": estimate.num_classes}, f"estimated; {named('num_classes')} sets the number"


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
