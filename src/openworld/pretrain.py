"""Features learnt without labels: a run in the folder of the one that begins with them, or counts classes by them."""

import sys
from pathlib import Path
from typing import Any

from openworld.config import SHARED_SETTINGS, Config, flatten
from openworld.data.dataset import Dataset
from openworld.data.problem import OpenWorld
from openworld.errors import UserError
from openworld.plan import Plan, plan_run
from openworld.record import FEATURES_RUN, RunFolder
from openworld.runtime import Runtime
from openworld.train import train


def settings_for_features(asked: dict[str, Any]) -> dict[str, Any]:
    """What a run and its features have in common; all else follows from the recipe simclr."""
    settings = {name: value for name, value in asked.items() if name in SHARED_SETTINGS}
    if asked.get("start_steps"):
        settings["steps"] = asked["start_steps"]
    return {**settings, "method": "simclr"}


def plan_features(
    asked: dict[str, Any], runtime: Runtime, minutes: float | None = None, dataset: Dataset | None = None
) -> Plan:
    settings = settings_for_features(asked)
    return plan_run(settings, runtime, None if "steps" in settings else minutes, dataset)


def learn_features(plan: Plan, out: Path, runtime: Runtime) -> tuple[RunFolder, OpenWorld]:
    """The run of SimCLR in `out`, finished: trained now, or as far as that is still to be done."""
    run = RunFolder(out / FEATURES_RUN)
    config = begun(run, plan) if run.exists else plan.config  # what was begun goes on as it began
    if not run.summary():
        if not runtime.quiet:
            length = f"{config.training.steps:,} steps in {run.path}"
            print(f"learning features first, without labels: {length}", file=sys.stderr, flush=True)
        train(config, run, runtime, plan.world)
    return run, plan.world


def begun(run: RunFolder, plan: Plan) -> Config:
    """The configuration of features that were begun before; they must be of the same problem."""
    config = run.config()
    for name in (*SHARED_SETTINGS, "method"):
        before, now = flatten(config)[name], flatten(plan.config)[name]
        if before != now:
            raise UserError(f"{run.path} holds features for {name} = {before}, not {now}: choose another --out")
    if run.split() not in (None, plan.world.split_json()):
        raise UserError(f"{config.data} has changed since the features in {run.path} were begun: choose another --out")
    return config
