"""Features learnt without labels: a run in the folder of the one that begins with them, or counts classes by them."""

import sys
from pathlib import Path
from typing import Any

from openworld.config import SHARED_SETTINGS, flatten, options
from openworld.data.dataset import Dataset
from openworld.errors import UserError
from openworld.plan import Plan, plan_run
from openworld.record import FEATURES_RUN, RunFolder
from openworld.runtime import Runtime
from openworld.train import train

OF_FEATURES = (*SHARED_SETTINGS, *(option.name for option in options() if option.path[0] == FEATURES_RUN))
"""The settings that decide them: what they share with the run, and those of the method that bears this name."""


def settings_for_features(asked: dict[str, Any]) -> dict[str, Any]:
    """What a run and its features have in common; all else follows from the recipe simclr."""
    settings = {name: value for name, value in asked.items() if name in OF_FEATURES}
    if asked.get("start_steps"):
        settings["steps"] = asked["start_steps"]
    return {**settings, "method": "simclr"}


def plan_features(
    asked: dict[str, Any], runtime: Runtime, minutes: float | None = None, dataset: Dataset | None = None
) -> Plan:
    """Steps that were asked for win over minutes, which are those of the whole run."""
    settings = settings_for_features(asked)
    return plan_run(settings, runtime, None if "steps" in settings else minutes, dataset)


def learn_features(plan: Plan, out: Path, runtime: Runtime, is_as_long: bool = False) -> RunFolder:
    """The run of SimCLR in `out`, finished: trained now, or as far as that is still to be done.

    What was begun goes on as it began; `is_as_long` says that it must be of the length that is planned now.
    """
    run, config = RunFolder(out / FEATURES_RUN), plan.config
    if run.exists:
        refuse_other_features(run, plan, is_as_long)
        config = run.config()
    if not run.summary():
        if not runtime.quiet:
            is_planned = plan.lines and config == plan.config
            length = plan.lines[-1] if is_planned else f"{config.training.steps:,} steps"
            print(f"learning features first, without labels, in {run.path}: {length}", file=sys.stderr, flush=True)
        train(config, run, runtime, plan.world)
    return run


def refuse_other_features(run: RunFolder, plan: Plan, is_as_long: bool) -> None:
    """Features that were begun before must be of the same problem."""
    before, now = flatten(run.config()), flatten(plan.config)
    for name in (*OF_FEATURES, "method", *(("steps",) if is_as_long else ())):
        if before[name] != now[name]:
            told = f"{name} = {before[name]}, not {now[name]}"
            raise UserError(f"{run.path} holds features for {told}: choose another --out")
    if run.split() not in (None, plan.world.split_json()):
        raise UserError(
            f"{plan.config.data} has changed since the features in {run.path} were begun: choose another --out"
        )
