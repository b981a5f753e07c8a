"""The plan of a run: its configuration, the open-world problem, and a description of both."""

import time
from dataclasses import dataclass
from typing import Any

import torch

from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.core.errors import UserError, named
from openworld.core.fields import replace
from openworld.data.augment import VIEWS
from openworld.data.batches import Views, refuse_large_batches
from openworld.data.dataset import Dataset
from openworld.data.opening import open_dataset
from openworld.data.problem import OpenWorld, TrainingSet, adapted_problem, load_problem
from openworld.nets.feature_views import with_blank_features, with_features
from openworld.ops.rng import generator
from openworld.planning.budget import (
    FEATURES_MINUTES,
    OWN_MINUTES,
    fit_to_memory,
    fit_to_time,
    refuse_bad_length,
)
from openworld.planning.description import describe
from openworld.planning.settings import batch_sizes, recipe_config, resolve_settings
from openworld.runs.world import backbone_of


@dataclass(frozen=True)
class Opened:
    """The data of a request and the problem made from it. They are loaded once and shared by all plans."""

    dataset: Dataset
    world: OpenWorld
    seconds: float = 0.0
    """How long the images took to go through a backbone."""
    has_backbone: bool = False


@dataclass(frozen=True)
class Plan:
    """What a run will do."""

    config: Config
    world: OpenWorld
    lines: tuple[str, ...]
    """The plan as text for the user."""


def open_problem(
    requested: dict[str, Any],
    runtime: Runtime,
    dataset: Dataset | None = None,
    views: int | None = None,
) -> Opened:
    """Open the requested data and make the problem from it.

    With a frozen backbone, the images go through it here.

    Args:
        requested: the requested settings, by key.
        runtime: device, memory and workers.
        dataset: the data, if it is in memory.
        views: number of random views of each image that go through a backbone; by default that of the settings.
    """
    dataset = dataset or open_dataset(recipe_config(requested).data, runtime.data_dir)
    config = resolve_settings(requested, dataset, runtime.device)
    world, backbone = load_problem(config, runtime, dataset=dataset), backbone_of(config)
    if backbone is None or config.training.finetune:
        return Opened(dataset, world, has_backbone=backbone is not None)
    backbone, training = backbone.to(runtime.device), config.training
    if views is None:  # a mistake in the settings is told before the images go through the backbone
        draft_plan(requested, Opened(dataset, with_blank_features(world, backbone)), runtime)
    began, num_random = time.monotonic(), training.backbone_views if views is None else views
    world = with_features(world, backbone, num_random, training.augment, runtime.quiet)
    return Opened(dataset, world, time.monotonic() - began, has_backbone=True)


def plan_run(
    requested: dict[str, Any],
    opened: Opened,
    runtime: Runtime,
    minutes: float | None = None,
    source: str | None = None,
) -> Plan:
    """Return the plan of a run. `minutes` sets the number of steps: the cost of a step is measured on this device.

    `source` says where the number of classes comes from, if it is neither set nor named by the data.
    """
    refuse_bad_length(requested, minutes)
    config, world = draft_plan(requested, opened, runtime)
    method, is_own, seconds = config.options.method(), config.recipe == "own", None
    if is_own and minutes is None and "steps" not in requested:
        minutes = OWN_MINUTES if method.uses_labels else FEATURES_MINUTES
    if minutes is not None and method.makes_steps:
        config, costs = fit_to_memory(config, world.training, runtime, set(requested))
        config, seconds = fit_to_time(config, world, costs, minutes * 60, set(requested))
    if source is None and "num_classes" in requested:
        source = f"set by {named('num_classes')}"
    has_text = is_own or seconds or opened.dataset.is_labelled is not None
    lines = describe(config, opened.dataset, world, seconds, source) if has_text else ()
    return Plan(config, world, tuple(lines))


def draft_plan(requested: dict[str, Any], opened: Opened, runtime: Runtime) -> tuple[Config, OpenWorld]:
    """Return everything but the length of the run. Raise a UserError for settings that cannot work."""
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
    """Raise a UserError if the method needs views that do not exist for this kind of data."""
    kind = "images" if data.has_images else "features"
    for family, size in config.options.method().views(config).kinds:
        is_for_images = (family or data.augment) not in ("features", VIEWS)
        if is_for_images != data.has_images or (size and not data.has_images):
            needed = f"{named('method', config.method)} needs augmented views that do not exist for {kind}"
            raise UserError(f"{needed}; choose another method")


def refuse_other_sizes(data: TrainingSet, views: Views) -> None:
    """Raise a UserError if views differ in size from the images, for a backbone that takes only one size."""
    sample = data.unlabelled.take(torch.tensor([0]))
    for kind in views.kinds:
        shape = data.family_of(*kind).random(sample, generator(0, "size", device=data.device)).shape[1:]
        if shape != data.shown_shape:
            needed = f"{named('network', 'identity')} needs images of {data.shown_shape[-1]} pixels"
            family = kind.family or data.augment
            raise UserError(f"{needed}, but {family} views have {shape[-1]} pixels; choose another network")
