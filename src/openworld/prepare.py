"""All that comes before the first step of a run: features to begin with, the number of classes, the plan."""

import sys
from pathlib import Path
from typing import Any

from openworld.data.dataset import Dataset
from openworld.estimate import estimate_classes
from openworld.plan import Plan, plan_run, recipe_config, refuse_bad_length, settle
from openworld.pretrain import learn_features, plan_features
from openworld.record import FEATURES_RUN
from openworld.runtime import Runtime

SHARE_TO_COUNT, SHARE_TO_BEGIN = 0.25, 0.5
"""Of the minutes of a run, those in which features are learnt: only to count classes by them, or to begin with them."""


def prepare_run(
    asked: dict[str, Any], runtime: Runtime, out: Path, minutes: float | None = None, dataset: Dataset | None = None
) -> Plan:
    """`out` is the folder of the run: what tells of the class count goes there, and features that are learnt first."""
    counts = asked.get("num_classes") == "auto"
    recipe = recipe_config(asked, in_memory=dataset is not None).training
    begins = asked.get("start", recipe.start) == FEATURES_RUN
    if not counts and not begins:
        return plan_run(asked, runtime, minutes, dataset)
    refuse_bad_length(asked, minutes)
    known = {name: value for name, value in asked.items() if name != "num_classes" or not counts}
    settle(known, runtime, dataset)  # or refuse, before the work
    before = None if minutes is None else (SHARE_TO_BEGIN if begins else SHARE_TO_COUNT) * minutes
    for_features = {"start_steps": recipe.start_steps, **asked} if begins and minutes is None else asked
    if counts:
        estimate = estimate_classes(for_features, runtime, out, minutes=before, dataset=dataset)
        if not runtime.quiet:
            print(f"{estimate.text()}: {estimate.how_sure()}", file=sys.stderr, flush=True)
        asked = {**asked, "num_classes": estimate.num_classes}
    if begins:
        learn_features(plan_features(for_features, runtime, before, dataset), out, runtime)
    left = None if minutes is None else minutes - before
    return plan_run(asked, runtime, left, dataset, count_is_estimated=counts)
