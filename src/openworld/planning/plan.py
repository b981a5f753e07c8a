"""The plan of a run: its configuration, the problem posed, and what is told about both."""

from dataclasses import dataclass
from typing import Any

import torch

from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.core.errors import UserError, named
from openworld.core.fields import replace
from openworld.data.batches import Views, refuse_large_batches
from openworld.data.dataset import Dataset
from openworld.data.opening import open_dataset
from openworld.data.problem import OpenWorld, TrainingSet, adapted_problem, load_problem
from openworld.ops.rng import generator
from openworld.planning.budget import FEATURES_MINUTES, OWN_MINUTES, fit_to_memory, fit_to_time, refuse_bad_length
from openworld.planning.description import describe
from openworld.planning.settings import batch_sizes, recipe_config, resolve_settings


@dataclass(frozen=True)
class Opened:
    """The data of a request, opened and posed once for all that is planned with it."""

    dataset: Dataset
    world: OpenWorld


@dataclass(frozen=True)
class Plan:
    """What is going to be done."""

    config: Config
    world: OpenWorld
    lines: tuple[str, ...]
    """For a person to read."""


def open_problem(requested: dict[str, Any], runtime: Runtime, dataset: Dataset | None = None) -> Opened:
    """`dataset` is what is asked for, where that is in memory."""
    dataset = dataset or open_dataset(recipe_config(requested).data, runtime.data_dir)
    return Opened(dataset, load_problem(resolve_settings(requested, dataset, runtime.device), runtime, dataset=dataset))


def plan_run(
    requested: dict[str, Any],
    opened: Opened,
    runtime: Runtime,
    minutes: float | None = None,
    count_is_estimated: bool = False,
) -> Plan:
    """A configuration and its problem; `minutes` sets the number of steps by measuring what one costs here."""
    refuse_bad_length(requested, minutes)
    config, world = draft_plan(requested, opened, runtime)
    method, is_own, seconds = config.options.method(), config.recipe == "own", None
    if is_own and minutes is None and "steps" not in requested:
        minutes = OWN_MINUTES if method.uses_labels else FEATURES_MINUTES
    if minutes is not None and method.makes_steps:
        config, costs = fit_to_memory(config, world.training, runtime, set(requested))
        config, seconds = fit_to_time(config, world, costs, minutes * 60, set(requested))
    source = "estimated" if count_is_estimated else "as you say" if "num_classes" in requested else None
    is_told = is_own or seconds or opened.dataset.is_labelled is not None
    lines = describe(config, opened.dataset, world, seconds, source) if is_told else ()
    return Plan(config, world, tuple(lines))


def draft_plan(requested: dict[str, Any], opened: Opened, runtime: Runtime) -> tuple[Config, OpenWorld]:
    """All but the length; what cannot work is refused here, before anything is trained."""
    config = resolve_settings(requested, opened.dataset, runtime.device)
    world = adapted_problem(opened.world, config)
    if config.recipe == "own":
        config = replace(config, {name: rows for name, rows in batch_sizes(world).items() if name not in requested})
    method = config.options.method()
    method.refuse(config, world.training)
    refuse_large_batches(world.training, config.training, method.uses_labels)
    refuse_other_views(config, world.training)
    if config.training.network == "identity":
        refuse_other_sizes(world.training, method.views(config))
    return config, world


def refuse_other_views(config: Config, data: TrainingSet) -> None:
    """A method may ask for views that there are none of."""
    kind = "features" if len(data.unlabelled.shape) == 1 else "images"
    for family, size in config.options.method().views(config).kinds:
        if ((family or data.augment) == "features") != (kind == "features") or (size and kind == "features"):
            raise UserError(f"{named('method', config.method)} wants views that there are none of for {kind}")


def refuse_other_sizes(data: TrainingSet, views: Views) -> None:
    """For a body that takes no images but of one size."""
    sample = data.unlabelled.take(torch.tensor([0]))
    for kind in views.kinds:
        shape = data.family_of(*kind).random(sample, generator(0, "size", device=data.device)).shape[1:]
        if shape != data.shown_shape:
            told = f"{named('network', 'identity')} takes images of {data.shown_shape[-1]} pixels"
            raise UserError(
                f"{told}, and views of {kind.family or data.augment} have {shape[-1]}: choose another network"
            )
