"""One way from a request to a run: the command line, the paper's rows, Python and the trials all go through here."""

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
from openworld.data.problem import load_problem
from openworld.planning.prepare import prepare_run
from openworld.planning.settings import recipe_config, with_absolute_paths
from openworld.runs.folder import RunFolder, new_path
from openworld.training.loop import train

LENGTHS = ("steps", "epoch_steps")
"""What minutes settle."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What somebody asks for. All else follows from the recipe, the data and the device."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the configuration, and options of its method, by their names."""
    minutes: float | None = None
    """About how long to train, in place of steps."""
    dataset: Dataset | None = None
    """The data, where it is in memory."""
    resume: bool = False
    """Go on with the run in the folder, and begin it where there is none."""

    def new_path(self) -> Path:
        """A new folder under runs/."""
        recipe = recipe_config(self.settings)
        method, seed = self.settings.get("method", recipe.method), self.settings.get("seed", recipe.seed)
        return new_path(recipe.data, method, seed)


def execute(request: Request, folder: RunFolder, runtime: Runtime) -> dict[str, Any]:
    """Train, in this folder, and give the summary."""
    if not request.resume:
        RunFolder.new(folder.path)
    elif folder.exists:
        return resume_run(request, folder, runtime)
    begun = folder.request() if request.resume else None
    if begun is None:
        RunFolder.new(folder.path)
    requested, minutes = merged(request, **begun) if begun else (request.settings, request.minutes)
    plan = prepare_run(requested, runtime, folder.path, minutes, request.dataset)
    if request.resume and not begun and "data" not in requested:
        tell(runtime, f"{folder.path} held no run: a new one begins, on {plan.config.data}")
    tell(runtime, *plan.lines)
    return train(plan.config, folder, runtime, plan.world)


def resume_run(request: Request, folder: RunFolder, runtime: Runtime) -> dict[str, Any]:
    """From the newest sound checkpoint; of a finished run, its result."""
    config = unchanged(folder, request.settings)
    if request.minutes is not None:
        raise UserError(f"{named('minutes')} sets the length of a new run; this one has its steps already")
    summary = folder.summary()
    if summary:
        tell(runtime, f"{folder.path} was finished before; its result:")
        return summary
    world = load_problem(config, runtime, folder.split(), request.dataset) if request.dataset else None
    return train(config, folder, runtime, world)


def merged(request: Request, requested: dict[str, Any], minutes: float | None) -> tuple[dict[str, Any], float | None]:
    """What was asked for when a run's features were begun, but for what is asked for now."""
    now, data = request.settings, requested.get("data", Config.data)
    if stable_name(now.get("data", data)) != data:
        raise UserError(f"the run was started with data = {data}, not {now['data']}: start a new one for that")
    if "steps" in now:
        minutes = None
    if request.minutes is not None:
        minutes, requested = request.minutes, {name: value for name, value in requested.items() if name not in LENGTHS}
    return over(requested, now), minutes


def over(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Settings of which the latter come last, and so win by whichever name (`config.by_keys`)."""
    return {**{name: value for name, value in before.items() if name not in now}, **now}


def unchanged(folder: RunFolder, requested: dict[str, Any]) -> Config:
    """A resumed run goes on as it began; only a folder or file may have moved, which the fingerprint guards."""
    config = folder.config()
    before = flatten(config)
    requested = by_keys(with_absolute_paths({"data": config.data, **requested}), *config.methods)
    data = requested["data"]
    is_path = Path(data).exists() and Path(config.data).is_absolute()
    for key, value in requested.items():
        may_differ = key == "data" and is_path and not folder.summary()
        is_settled = (
            (key, value) == ("recipe", "auto")
            or ((key, value) == ("num_classes", "auto") and folder.estimated_classes() == config.problem.num_classes)
            or ((key, value, config.method) == ("method", "trssl", "trssl+") and folder.format == 1)
        )
        if key not in before:
            raise UserError(f"{named(key)}: the run has nothing to do with it, leave it out")
        if value != before[key] and not may_differ and not is_settled:
            raise UserError(f"the run was started with {key} = {before[key]}, not {value}: start a new one for that")
    return replace(config, {"data": data})


def resume_hint(folder: RunFolder) -> str:
    """What to do after a stop."""
    if folder.exists or folder.request():
        return f"continue with: {folder.resume_command}"
    return "nothing was begun yet: the same command begins it"


def tell(runtime: Runtime, *lines: str) -> None:
    """Beside the result, for who wants to know."""
    if not runtime.quiet:
        for line in lines:
            print(line, file=sys.stderr, flush=True)
