"""Training from Python: the same as `openworld train`, and also for data in memory."""

from pathlib import Path
from typing import Any

import numpy as np

from openworld.compute.runtime import make_runtime
from openworld.core.errors import UserError, called_from_python, did_you_mean
from openworld.core.fields import options, typed
from openworld.core.signals import Interrupted
from openworld.data.dataset import Dataset
from openworld.data.opening import IN_MEMORY
from openworld.data.own import from_arrays, from_frame
from openworld.methods import METHODS
from openworld.planning.request import Request, execute
from openworld.runs.folder import RunFolder


def train_on(
    data: Any,
    labels: Any = None,
    *,
    root: str | Path = ".",
    out: str | Path | None = None,
    minutes: float | None = None,
    resume: bool = False,
    device: str = "auto",
    workers: int | None = None,
    compile: str = "auto",
    deterministic: bool = False,
    quiet: bool = True,
    **settings: Any,
) -> dict[str, Any]:
    """Train and return the summary, in which `run` is the run folder.

    The command line cannot resume or evaluate a run on data in memory, because it cannot find that data again.

    Args:
        data: a path or benchmark name as on the command line; a DataFrame with the columns path, label and split; an
            array of uint8 images (N, H, W[, C]) or of features (N, D), with `labels`; or a `Dataset`.
        labels: one label for each row of an array. -1 (or '') means unlabelled.
        root: the folder to which the paths in a DataFrame are relative.
        out: the run folder. By default a new folder under runs/.
        minutes: approximate length of training, instead of `steps`.
        resume: whether to resume the run in `out` with the same data, or to start it if there is none.
        device: "auto", "cpu" or "cuda".
        settings: all other settings that `openworld train --help` lists, with underscores: num_classes="auto", lr=0.1,
            seed=1 ... None means that a setting is not given. Only start=None has a meaning of its own: random initial
            weights, even if the recipe starts from features.
    """
    with called_from_python():
        if resume and out is None:
            raise UserError("resume needs out, the folder of the run to resume")
        settings = checked_settings(settings)
        runtime = make_runtime(device, None, workers, compile, deterministic, quiet)
        dataset = _dataset(data, labels, root)
        settings["data"] = f"{IN_MEMORY}{dataset.name}" if dataset else str(data)
        request = Request(settings=settings, minutes=minutes, dataset=dataset, resume=resume)
        folder = RunFolder(Path(out) if out else request.new_path())
        try:
            return {**execute(request, folder, runtime), "run": str(folder.path)}
        except Interrupted as stopped:  # Ctrl-C should stop the whole program, not only this call
            raise KeyboardInterrupt(f"{stopped}; {resume_hint_in_python(folder)}") from None


def resume_hint_in_python(folder: RunFolder) -> str:
    """Say how to continue a run that was stopped."""
    return f"to continue: train_on(..., out={str(folder.path)!r}, resume=True), with the same data"


def checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Check names and types of settings. Convert numpy numbers to Python numbers, and paths to text."""
    known = {option.key: option for option in options(*METHODS)}
    known = {option.name: option for option in reversed(known.values())} | known
    checked = {}
    for name, value in settings.items():
        if name not in known:
            raise UserError(f"{name}: no such setting{did_you_mean(name, known)}")
        value = value.item() if isinstance(value, np.generic) else value
        value = str(value) if isinstance(value, Path) else value
        if value is not None:
            checked[name] = typed(known[name], value)
        elif name == "start":
            checked[name] = None
    return checked


def _dataset(data: Any, labels: Any, root: str | Path) -> Dataset | None:
    """Return data in memory as a data set, or None if `data` is a path or a name."""
    is_array = not isinstance(data, (str, Path, Dataset)) and not hasattr(data, "columns")
    if labels is not None and not is_array:
        raise UserError("labels works only with an array, because other data contains its labels; leave labels out")
    if isinstance(data, (str, Path)):
        return None
    if isinstance(data, Dataset):
        return data
    if not is_array:
        return from_frame(data, root)
    if labels is None:
        raise UserError("an array needs labels: one for each row, -1 for unlabelled rows")
    return from_arrays(data, labels)
