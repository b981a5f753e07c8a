"""Many runs in one process: each in a folder of its own, those that are finished already are skipped.

`openworld sweep`, the items of `openworld paper` and the trials all train through `carry_out`.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from openworld.compute.runtime import Runtime
from openworld.core.config import FEATURES_RUN, NCD
from openworld.core.errors import UserError, did_you_mean, named
from openworld.core.fields import Option, all_names, folder_name, options, typed
from openworld.data.benchmarks import BENCHMARKS
from openworld.data.dataset import Dataset
from openworld.data.opening import open_dataset
from openworld.methods import METHODS
from openworld.planning.plan import draft_plan, open_problem
from openworld.planning.prepare import settings_with_features
from openworld.planning.pretraining import learn_features, plan_features, settings_of_features
from openworld.planning.request import Request, execute
from openworld.planning.settings import recipe_config, resolve_settings, with_keys
from openworld.runs.folder import RunFolder

LARGEST_GRID = 1000
"""Number of runs from which a grid is most likely a mistake."""


@dataclass(frozen=True)
class Trial:
    """One of many runs."""

    name: str
    """Name of its folder."""
    settings: dict[str, Any]
    """The settings to request."""


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: a summary, or the reason why there is none."""

    trial: Trial
    folder: RunFolder
    summary: dict[str, Any] | None
    failure: str | None = None


# The grid ---------------------------------------------------------------------------------------------------


def grid(varied: Mapping[str, Sequence[Any]], common: Mapping[str, Any]) -> list[Trial]:
    """Return a trial for each combination of the values; the last setting changes fastest.

    >>> [trial.name for trial in grid({"epsilon": [0.05, 0.1], "seed": [0]}, {"data": "digits"})]
    ['epsilon-0.05-seed-0', 'epsilon-0.1-seed-0']
    """
    size = math.prod(map(len, varied.values()))
    if size < 2:
        raise UserError(f"there is nothing to vary; add {named('vary')} NAME=VALUE,VALUE or {named('seeds')} N")
    if size > LARGEST_GRID:
        raise UserError(f"these values make {size:,} runs; a sweep has at most {LARGEST_GRID:,}")
    trials = [
        Trial(folder_name(chosen), {**common, **chosen})
        for values in itertools.product(*varied.values())
        for chosen in [dict(zip(varied, values, strict=True))]
    ]
    names = [trial.name for trial in trials]
    alike = next((name for name in names if names.count(name) > 1), None)
    if alike:
        raise UserError(f"two runs would have the same folder, {alike}; choose values that differ more")
    return trials


def varied_setting(text: str) -> tuple[str, list[Any]]:
    """Return the name and the values of a text such as `epsilon=0.05,0.1`. Raise a UserError if one is not valid."""
    name, equals, values = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    known = {option.name: option for option in reversed(options(*METHODS))} | {o.key: o for o in options(*METHODS)}
    if name not in known:
        raise UserError(f"{named('vary')} {name}: no such setting{did_you_mean(name, all_names())}")
    words = [word.strip() for word in values.split(",")]
    if not equals or not all(words):
        raise UserError(f"{named('vary')} {text}: write NAME=VALUE,VALUE, for example epsilon=0.05,0.1")
    found = [converted(known[name], word) for word in words]
    twice = next((word for word, value in zip(words, found, strict=True) if found.count(value) > 1), None)
    if twice is not None:
        raise UserError(f"{named('vary')} {text}: {twice} is there twice; name each value once")
    return name, found


def converted(option: Option, word: str) -> Any:
    """Return the value of a setting that a user writes as this word."""
    words = {"on": True, "off": False}
    try:
        if option.kind is bool:
            return words[word]
        return word if option.may_be_auto and word == "auto" else typed(option, option.kind(word))
    except (KeyError, ValueError):
        kind = {bool: "on or off", int: "a whole number", float: "a number"}[option.kind]
        raise UserError(f"{named('vary')} {option.name}={word}: {word} is not {kind}") from None


# Runs -------------------------------------------------------------------------------------------------------


def carry_out(
    trials: Sequence[Trial],
    folder: Path,
    runtime: Runtime,
    minutes: float | None = None,
    begin: Callable[[Trial, RunFolder], None] = lambda trial, run: None,
    end: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Train all trials, each in `folder/NAME`. Finished ones are skipped, a stopped one continues.

    Runs that start from SimCLR features share them where they may. If a trial fails, the others are still trained.

    Args:
        trials: the runs.
        folder: the folder of their run folders, and of the shared features.
        runtime: the device and how data gets to it.
        minutes: approximate length of each run, instead of steps.
        begin: is called before a trial, with its run folder.
        end: is called after a trial.
    """
    datasets = {name: open_dataset(name, runtime.data_dir) for name in dict.fromkeys(map(data_of, trials))}
    for trial in trials:  # a mistake in the settings of any trial is told before the first one is trained
        resolve_settings(with_keys(trial.settings), datasets[data_of(trial)], runtime.device)
    outcomes, learnt = [], set()
    for trial in trials:
        run, summary, failure = RunFolder(folder / trial.name), None, None
        begin(trial, run)
        try:
            summary = train_one(trial, run, runtime, datasets[data_of(trial)], minutes, learnt)
        except (UserError, torch.OutOfMemoryError) as error:
            failure = str(error).splitlines()[0]
        outcomes.append(Outcome(trial, run, summary, failure))
        end(outcomes[-1])
    return outcomes


def train_one(
    trial: Trial, run: RunFolder, runtime: Runtime, dataset: Dataset, minutes: float | None, learnt: set[Path]
) -> dict[str, Any]:
    """Train a trial, or continue it, and return its summary. A finished run must have the settings of the trial.

    `learnt` are the folders of the shared features that were learnt or checked already. This function adds to them.
    """
    settings = trial.settings
    if minutes is None and shares_features(trial) and not has_own_features(run):
        features = shared_features(trial, run.path.parent)
        if not run.summary() and features.path not in learnt:
            learn_shared(trial, features, runtime, dataset)
            learnt.add(features.path)
        settings = {**settings, "start": start_in(run, features), "start_steps": None}
    minutes = None if run.exists else minutes
    return execute(Request(settings=settings, minutes=minutes, dataset=dataset, resume=True), run, runtime)


def data_of(trial: Trial) -> str:
    """Return the name of the data of a trial."""
    return recipe_config(trial.settings).data


# Shared features --------------------------------------------------------------------------------------------


def shares_features(trial: Trial) -> bool:
    """Return whether a trial starts from SimCLR features that other trials may use too.

    An estimate of the number of classes learns features of its own.
    """
    start = trial.settings.get("start", recipe_config(trial.settings).training.start)
    return start == FEATURES_RUN and trial.settings.get("num_classes") != "auto"


def has_own_features(run: RunFolder) -> bool:
    """Return whether a run was started by itself, so that its features are in its own folder."""
    return run.config().training.start == FEATURES_RUN if run.exists else run.request() is not None


def shared_features(trial: Trial, folder: Path) -> RunFolder:
    """Return the run that learns the features of a trial. Its name says what decides them."""
    requested, data = settings_without_split(with_keys(trial.settings)), data_of(trial)
    deciding = {name: value for name, value in requested.items() if name in (*settings_of_features(), "start_steps")}
    place = "" if data in BENCHMARKS else f"-{hashlib.sha256(data.encode()).hexdigest()[:8]}"
    name = folder_name({"seed": 0, **deciding, "data": f"{Path(data).stem}{place}"})
    return RunFolder(folder / f"features-{name}" / FEATURES_RUN)


def start_in(run: RunFolder, features: RunFolder) -> str:
    """Return the path of the features as the run knows it: the folder of the sweep may have moved since."""
    known = run.config().training.start if run.exists else None
    return known if known and Path(known).parts[-2:] == features.path.parts[-2:] else str(features.path)


def learn_shared(trial: Trial, features: RunFolder, runtime: Runtime, dataset: Dataset) -> None:
    """Learn the features of a trial. If another trial has learnt them, check that they are of the same images."""
    requested = with_keys(trial.settings)
    if not features.summary():  # mistakes in the trial itself are told before the features are learnt, not after
        draft_plan(requested, open_problem(requested, runtime, dataset), runtime)
    requested = settings_without_split(requested)
    opened = open_problem(requested, runtime, dataset)
    for_features = settings_with_features(requested, opened, runtime, has_own_length=True)
    learn_features(plan_features(for_features, opened, runtime), features.path.parent, runtime, is_as_long=True)


def settings_without_split(requested: dict[str, Any]) -> dict[str, Any]:
    """Leave out the settings that decide which images have labels, but not which images there are.

    SimCLR sees no labels, so runs that differ only in these settings share its features.
    """
    leaves_images_out = requested.get("task") == NCD and requested.get("labelled", 100.0) != 100
    free = () if leaves_images_out else ("task", "novel", "labelled")
    return {name: value for name, value in requested.items() if name not in free}
