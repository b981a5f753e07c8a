"""Features learnt without labels, in a run of their own inside the folder of the run that uses them."""

import sys
from pathlib import Path
from typing import Any

from openworld.compute.runtime import Runtime
from openworld.core.config import FEATURES_RUN, SHARED_SETTINGS
from openworld.core.errors import UserError, named
from openworld.core.fields import flatten, options
from openworld.data.problem import OpenWorld
from openworld.planning.plan import Opened, Plan, plan_run
from openworld.runs.folder import RunFolder
from openworld.training.loop import train


def settings_of_features() -> tuple[str, ...]:
    """Return the keys that the features depend on: those shared with the run, and the options of their method."""
    return *SHARED_SETTINGS, *(option.key for option in options(FEATURES_RUN) if option.section == FEATURES_RUN)


def settings_for_features(requested: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a run and its features share. All others come from the recipe simclr."""
    settings = {name: value for name, value in requested.items() if name in settings_of_features()}
    if requested.get("start_steps"):
        settings["steps"] = requested["start_steps"]
    return {**settings, "method": FEATURES_RUN}


def plan_features(requested: dict[str, Any], opened: Opened, runtime: Runtime, minutes: float | None = None) -> Plan:
    """Plan the run that learns features. Requested steps take precedence over minutes."""
    settings = settings_for_features(requested)
    return plan_run(settings, opened, runtime, None if "steps" in settings else minutes)


def learn_features(plan: Plan, out: Path, runtime: Runtime, is_as_long: bool = False) -> RunFolder:
    """Return the finished SimCLR run in `out`. Train it first, or resume it, if it is not finished.

    A run that has started continues with its own settings. With `is_as_long` it must have the planned length.
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
    """Raise a UserError if existing features belong to other settings or data than the plan."""
    before, now = flatten(run.config()), flatten(plan.config)
    for name in (*settings_of_features(), "method", *(("steps",) if is_as_long else ())):
        if before[name] != now[name]:
            difference = f"{name} = {before[name]}, not {now[name]}"
            raise UserError(f"{run.path} contains features learnt with {difference}; choose another {named('out')}")
    if run.split() and not is_same_problem(run, plan.world):
        changed = f"{plan.config.data} has changed since openworld started to learn the features in {run.path}"
        raise UserError(f"{changed}; choose another {named('out')}")


def is_same_problem(run: RunFolder, world: OpenWorld) -> bool:
    """Return whether a run was trained on this split of this data."""
    split, facts = run.split_and_facts()
    return (split, facts.get("fingerprint"), set(facts.get("dropped", {}))) == (
        world.split,
        world.fingerprint,
        set(world.dropped),
    )
