"""From a request to a run. The command line, the rows of the paper, Python and the trials all use this module."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.core.errors import UserError, named
from openworld.core.fields import by_keys, flatten, replace
from openworld.data.dataset import Dataset
from openworld.data.opening import stable_name
from openworld.planning.prepare import prepare_run
from openworld.planning.settings import recipe_config, with_absolute_paths
from openworld.runs.folder import RunFolder, new_path
from openworld.runs.world import open_world
from openworld.training.loop import train

LENGTHS = ("steps", "epoch_steps")
"""Settings that `minutes` decides."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The settings that a user requests. All others follow from the recipe, the data and the device."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the configuration and options of its method, by name."""
    minutes: float | None = None
    """Approximate length of training, instead of steps."""
    dataset: Dataset | None = None
    """The data, if it is in memory."""
    resume: bool = False
    """Whether to resume the run in the folder, or to start it if there is none."""

    def new_path(self) -> Path:
        """Return a new path under runs/."""
        recipe = recipe_config(self.settings)
        method, seed = self.settings.get("method", recipe.method), self.settings.get("seed", recipe.seed)
        return new_path(recipe.data, method, seed)


def execute(request: Request, folder: RunFolder, runtime: Runtime) -> dict[str, Any]:
    """Train in this folder and return the summary."""
    if not request.resume:
        RunFolder.new(folder.path)
    elif folder.exists:
        return resume_run(request, folder, runtime)
    earlier = folder.request() if request.resume else None
    if earlier is None:
        RunFolder.new(folder.path)
    requested, minutes = merge_with_earlier(request, **earlier) if earlier else (request.settings, request.minutes)
    plan = prepare_run(requested, runtime, folder.path, minutes, request.dataset)
    if request.resume and not earlier and "data" not in requested:
        print_lines(runtime, f"{folder.path} contains no run to resume; starting a new run on {plan.config.data}")
    print_lines(runtime, *plan.lines)
    return train(plan.config, folder, runtime, plan.world)


def resume_run(request: Request, folder: RunFolder, runtime: Runtime) -> dict[str, Any]:
    """Resume a run from its newest undamaged checkpoint, or return the summary of a finished run."""
    config = config_to_resume(folder, request.settings)
    if request.minutes is not None:
        fixed = f"the length of {folder.path} is already fixed at {config.training.steps:,} steps"
        raise UserError(f"{named('minutes')} sets the length of a new run, but {fixed}; leave {named('minutes')} out")
    summary = folder.summary()
    if summary:
        print_lines(runtime, f"{folder.path} is already finished. Its result:")
        return summary
    world = open_world(config, runtime, folder, request.dataset) if request.dataset else None
    return train(config, folder, runtime, world)


def merge_with_earlier(
    request: Request, requested: dict[str, Any], minutes: float | None
) -> tuple[dict[str, Any], float | None]:
    """Return the settings and minutes requested when the features were started, with those requested now on top."""
    now, data = request.settings, requested.get("data", Config.data)
    if stable_name(now.get("data", data)) != data:
        raise UserError(f"the run was started with data = {data}, not {now['data']}; start a new run for other data")
    if "steps" in now:
        minutes = None
    if request.minutes is not None:
        minutes, requested = request.minutes, {name: value for name, value in requested.items() if name not in LENGTHS}
    return over(requested, now), minutes


def over(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Merge settings. Those of `now` come last, so that `fields.by_keys` prefers them under any of their names."""
    return {**{name: value for name, value in before.items() if name not in now}, **now}


def config_to_resume(folder: RunFolder, requested: dict[str, Any]) -> Config:
    """Return the configuration of a run. Raise a UserError if a requested setting differs from it.

    Only the path of the data may differ, because files can move. The fingerprint makes sure that the data is the same.
    """
    config = folder.config()
    before = flatten(config)
    requested = by_keys(with_absolute_paths({"data": config.data, **requested}), *config.methods)
    data = requested["data"]
    is_path = Path(data).exists() and Path(config.data).is_absolute()
    for key, value in requested.items():
        may_differ = key == "data" and is_path and not folder.summary()
        is_equivalent = (
            (key, value) == ("recipe", "auto")
            or ((key, value) == ("num_classes", "auto") and folder.estimated_classes() == config.problem.num_classes)
            or ((key, value, config.method) == ("method", "trssl", "trssl+") and folder.format == 1)
        )
        if key not in before:
            raise UserError(f"{named(key)} is not a setting of this run (method {config.method}); leave it out")
        if value != before[key] and not may_differ and not is_equivalent:
            raise UserError(
                f"the run was started with {key} = {before[key]}, not {value}; start a new run to change it"
            )
    return replace(config, {"data": data})


def resume_hint(folder: RunFolder) -> str:
    """Return what the user can do after a stop."""
    if folder.exists or folder.request():
        return f"continue with: {folder.resume_command}"
    return "no step was saved yet; run the same command again (cached images and features are not computed again)"


def print_lines(runtime: Runtime, *lines: str) -> None:
    """Print lines to standard error, unless the run is quiet."""
    if not runtime.quiet:
        for line in lines:
            print(line, file=sys.stderr, flush=True)
