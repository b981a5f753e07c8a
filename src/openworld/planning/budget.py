"""Fit a run to the memory and the time: halve batches, and set the number of steps from the measured cost of a step."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from openworld.compute.cuda_graphs import CALLS_BEFORE_CAPTURE
from openworld.compute.device import synchronize
from openworld.compute.runtime import Runtime
from openworld.core.config import CLUSTERS, Config
from openworld.core.errors import UserError, named
from openworld.core.fields import replace
from openworld.data.problem import OpenWorld, TrainingSet
from openworld.nets.inference import inference_copy
from openworld.runs.world import backbone_of
from openworld.training.learner import Learner

OWN_MINUTES, FEATURES_MINUTES = 5.0, 1.5
"""Default length of training on user data, and of a run on it that only learns features."""
MOST_PASSES, PASSES_FROM_CLUSTERS = 200, 20
"""Upper limit of passes over the unlabelled samples, and the same for a run that begins with clusters of features."""
FEWEST_STEPS, FEWEST_ROWS = 20, 8
PASSES_AND_VIEWS = ((10, 10), (10, 5), (5, 5), (4, 3), (2, 2))
"""Pairs of epochs and uncertainty views. The first pair that leaves enough time for training steps is used."""
SHARE_OF_PASSES = 0.3
"""Proportion of the time that passes over the whole set may take."""
ENOUGH_SECONDS = 3.0
"""How long a cost is measured."""


def refuse_bad_length(requested: dict[str, Any], minutes: float | None) -> None:
    """Raise a UserError if both minutes and steps are given, or if the minutes are not a positive number."""
    if minutes is not None and "steps" in requested:
        raise UserError(f"{named('minutes')} and {named('steps')} both set the length of training; give only one")
    if minutes is not None and not 0 < minutes < math.inf:
        raise UserError(f"{named('minutes')} is {minutes}; it must be above 0")


class Costs(NamedTuple):
    """Measured costs in seconds."""

    step: float
    """Seconds for one training step."""
    sample: float
    """Seconds for the forward pass of one sample in a random view."""


def fit_to_memory(config: Config, data: TrainingSet, runtime: Runtime, requested: set[str]) -> tuple[Config, Costs]:
    """Return the configuration and its costs. Halve batch sizes that were not requested until they fit in memory."""
    adjustable = {"batch_labelled", "batch_unlabelled"} - requested
    while True:
        try:
            return config, measure_costs(config, data, runtime)
        except torch.OutOfMemoryError:
            halves = {name: getattr(config.training, name) // 2 for name in adjustable}
            if min(halves.values(), default=0) < FEWEST_ROWS:
                raise
        config = replace(config, halves)
        torch.cuda.empty_cache()


def fit_to_time(
    config: Config, world: OpenWorld, costs: Costs, seconds: float, requested: set[str]
) -> tuple[Config, float]:
    """Set the number of steps that fit in the time, together with passes over the whole set; and return the seconds."""
    step_seconds, sample_seconds = costs
    sizes = {part: len(truth.samples) for part, truth in world.truths.items()}
    num_train, num_all = sizes["unlabelled"], sum(sizes.values())
    num_evaluated = sizes[world.evaluated_part] if world.evaluated_part else 0

    method = config.options.method()
    num_passing = num_train + (0 if method.uses_labels else len(world.training.labelled))

    def seconds_of_epoch(views: int) -> float:
        passes = method.passes(replace(config, {"uncertainty_views": views}))
        return sample_seconds * (passes * num_passing + 2 * num_evaluated)

    def seconds_of_passes(epochs: int, views: int) -> float:
        return epochs * seconds_of_epoch(views) + sample_seconds * (views + 1) * num_all

    affordable = [pair for pair in PASSES_AND_VIEWS if seconds_of_passes(*pair) <= SHARE_OF_PASSES * seconds]
    epochs, views = affordable[0] if affordable else PASSES_AND_VIEWS[-1]
    if "uncertainty_views" in requested:
        views = config.answers.uncertainty_views
    if "epoch_steps" in requested:  # then each step includes its part of the passes of an epoch
        epochs, step_seconds = 0, step_seconds + seconds_of_epoch(views) / config.training.epoch_steps
    passes = seconds_of_passes(epochs, views)
    most = most_steps(config, num_train)
    steps = min(max(FEWEST_STEPS, int((seconds - passes) / step_seconds)), most)
    chosen = {"steps": steps, "epoch_steps": -(-steps // max(epochs, 1)), "uncertainty_views": views}
    chosen = {name: value for name, value in chosen.items() if name not in requested}
    return replace(config, chosen), steps * step_seconds + passes


def most_steps(config: Config, num_train: int) -> int:
    """Return the number of steps after which more of them do not help."""
    fewest, passes = (100, PASSES_FROM_CLUSTERS) if config.training.start == CLUSTERS else (500, MOST_PASSES)
    return max(fewest, passes * num_train // config.training.batch_unlabelled)


def measure_costs(config: Config, data: TrainingSet, runtime: Runtime) -> Costs:
    """Measure the costs of a training step and of a forward pass on this device."""
    learner = Learner(config, data, runtime, backbone_of(config))
    predict_view = learner.batches.view_predictor(inference_copy(learner.network), "measure", 0)
    chunk = next(data.unlabelled.chunks(learner.batches.rows_at_once))

    def pass_through() -> None:
        with torch.no_grad():
            predict_view(chunk)

    step_seconds = seconds_of(learner.learn, runtime.device)
    return Costs(step_seconds, seconds_of(pass_through, runtime.device) / len(chunk))


def seconds_of(work: Callable[[], None], device: torch.device) -> float:
    """Return the median time of several calls, without the first ones, which also do setup work."""
    num_warm_up = CALLS_BEFORE_CAPTURE + 1 if device.type == "cuda" else 1
    times, began = [], time.monotonic()
    for attempt in range(50):
        start = time.monotonic()
        work()
        synchronize(device)
        if attempt >= num_warm_up:
            times.append(time.monotonic() - start)
        if len(times) >= 2 and time.monotonic() - began > ENOUGH_SECONDS:
            break
    return statistics.median(times)
