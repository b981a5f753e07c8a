"""Training from Python: what `openworld train` does, for data that is in memory too."""

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
    """Train, and return the summary; `run` in it is the run folder.

    A run on data from memory cannot be resumed or evaluated by the command line, which cannot find that data again.

    Args:
        data: what the command line takes; or a DataFrame with the columns path, label and split; or an array of images
            (N, H, W[, C]) uint8 or of features (N, D), with `labels`; or a `Dataset`.
        labels: one for each row of an array; -1 (or '') is unlabelled.
        root: the folder of a DataFrame's paths.
        resume: go on with the run in `out`, given the same data; begin it where there is none.
        settings: whatever `openworld train --help` lists, with underscores: num_classes="auto", lr=0.1, seed=1 ...
            None is as if it were not there, but for start=None: drawn weights, whatever the recipe has.
    """
    with called_from_python():
        if resume and out is None:
            raise UserError("resume needs out: which run is to be continued?")
        settings = checked_settings(settings)
        runtime = make_runtime(device, None, workers, compile, deterministic, quiet)
        dataset = _dataset(data, labels, root)
        settings["data"] = f"{IN_MEMORY}{dataset.name}" if dataset else str(data)
        request = Request(settings=settings, minutes=minutes, dataset=dataset, resume=resume)
        folder = RunFolder(Path(out) if out else request.new_path())
        try:
            return {**execute(request, folder, runtime), "run": str(folder.path)}
        except Interrupted as stopped:  # who presses Ctrl-C means the whole program
            raise KeyboardInterrupt(f"{stopped}; what is done is in {folder.path}") from None


def checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """As a configuration file would have them: numpy's numbers become Python's, paths text."""
    known = {option.key: option for option in options(*METHODS)}
    known = {option.name: option for option in reversed(known.values())} | known
    checked = {}
    for name, value in settings.items():
        if name not in known:
            raise UserError(f"{name}: there is no such setting{did_you_mean(name, known)}")
        value = value.item() if isinstance(value, np.generic) else value
        value = str(value) if isinstance(value, Path) else value
        if value is not None:
            checked[name] = typed(known[name], value)
        elif name == "start":
            checked[name] = None
    return checked


def _dataset(data: Any, labels: Any, root: str | Path) -> Dataset | None:
    """What is in memory already, as a data set."""
    is_array = not isinstance(data, (str, Path, Dataset)) and not hasattr(data, "columns")
    if labels is not None and not is_array:
        raise UserError("labels are for an array; all other data has its own")
    if isinstance(data, (str, Path)):
        return None
    if isinstance(data, Dataset):
        return data
    if not is_array:
        return from_frame(data, root)
    if labels is None:
        raise UserError("an array needs labels: one for each row, -1 where there is none")
    return from_arrays(data, labels)
