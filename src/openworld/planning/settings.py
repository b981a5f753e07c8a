"""What the settings of a run are: defaults < recipe < what follows from the data < what was asked for."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from openworld.core.config import FEATURES_RUN, Config, Problem, methods_of, refuse_unknown_method
from openworld.core.errors import UserError, did_you_mean, named
from openworld.core.fields import by_keys, options, replace
from openworld.core.recipes import RECIPES, recipe_for
from openworld.data.benchmarks import BENCHMARKS
from openworld.data.dataset import Dataset, Files
from openworld.data.decode import BadImage, image_size
from openworld.data.opening import stable_name
from openworld.data.problem import OpenWorld, is_file_of_shares
from openworld.methods import METHODS
from openworld.runs.folder import RunFolder

LARGEST_SIDE = {"cpu": 64, "cuda": 256}
"""Of the images of own data. On a GPU 256, of which a view shows 224."""


def recipe_config(requested: dict[str, Any]) -> Config:
    """The recipe for the data that was asked for: what can be known without opening it."""
    data = stable_name(requested.get("data", Config.data))
    if "method" in requested:
        refuse_unknown_method(requested["method"])
    recipe = recipe_for(requested.get("recipe", "auto"), data, data in BENCHMARKS, requested.get("method"))
    return replace(RECIPES[recipe](data), {"recipe": recipe})


def with_keys(requested: dict[str, Any]) -> dict[str, Any]:
    """By keys: an option that is named without its method is the run's, or that of the features it begins with."""
    recipe = recipe_config(requested)
    return by_keys(
        requested, *methods_of(requested.get("method", recipe.method), requested.get("start", recipe.training.start))
    )


def resolve_settings(requested: dict[str, Any], dataset: Dataset, device: torch.device) -> Config:
    """The whole configuration; what was asked for is given by its keys."""
    config = recipe_config(requested)
    requested = {**requested, "recipe": config.recipe, "data": config.data}
    config = replace(config, {**class_settings(dataset), "method": requested.get("method", config.method)})
    if config.recipe == "own":
        config = replace(config, own_settings(dataset, device, config))
    start = requested.get("start")
    if start not in (None, FEATURES_RUN):
        try:
            RunFolder.open(Path(start))
        except UserError as error:
            raise UserError(f"{named('start')} {error}{did_you_mean(start, [FEATURES_RUN])}") from None
        requested |= {"start_steps": None}
    methods = methods_of(config.method, requested.get("start", config.training.start))
    mine = {option.key for option in options(*methods)}
    settled = replace(config, with_absolute_paths({key: value for key, value in requested.items() if key in mine}))
    refuse_unused_settings(requested, config, settled, dataset)
    return with_its_steps(settled, requested)


def with_its_steps(config: Config, requested: dict[str, Any]) -> Config:
    """A method that is fitted once makes none."""
    if config.options.method().makes_steps:
        if not config.training.steps:
            raise UserError(f"{named('steps')} is 0; it must be 1 or more")
        return config
    if requested.get("steps"):
        raise UserError(f"{named('steps')} does nothing: {config.method} is fitted once, not trained by steps")
    return replace(config, {"steps": 0})


def with_absolute_paths(requested: dict[str, Any]) -> dict[str, Any]:
    """With files and folders as they are found from every working directory."""
    paths = {}
    if "data" in requested:
        paths["data"] = stable_name(requested["data"])
    if is_file_of_shares(requested.get("prior")) and Path(requested["prior"]).is_file():
        paths["prior"] = str(Path(requested["prior"]).absolute())
    if requested.get("start") not in (None, FEATURES_RUN):
        paths["start"] = str(Path(requested["start"]).absolute())
    return {**requested, **paths}


def refuse_unused_settings(requested: dict[str, Any], usual: Config, config: Config, dataset: Dataset) -> None:
    """What was asked for in vain. A default asks for nothing, nor does what would be so anyway."""
    for name in ("novel", "labelled", "imbalance"):
        if dataset.is_labelled is not None and requested.get(name, getattr(Problem, name)) != getattr(Problem, name):
            raise UserError(f"{named(name)} turns a fully labelled set into a problem; {dataset.name} is one already")
    for name, needed in config.options.needs.items():
        default, usually = (getattr(each, name) for each in (type(config.options), usual.options))
        value = requested.get(f"{config.method}.{name}", default)
        if value not in (default, usually) and not getattr(config.options, needed):
            raise UserError(f"{named(name)} does nothing without {named(needed)}: add that, or leave {named(name)} out")
    for option in options(*METHODS):
        is_of_other = option.section in METHODS.keys() - {*config.methods}
        if is_of_other and requested.get(option.key, option.default) != option.default:
            told, whose = named(option.key), named("method", option.section)
            raise UserError(f"{told} is for {whose}: add that, or leave {told} out")
    if dataset.has_features and requested.get("image_size"):
        raise UserError(f"{named('image_size')} is for images, and {dataset.name} holds features: leave it out")


# What follows from the data ---------------------------------------------------------------------------------


def class_settings(dataset: Dataset) -> dict[str, Any]:
    """What is known of the classes, or assumed; settings by their keys."""
    if dataset.is_labelled is None:
        return {"prior": "known"}  # the labels are there to be counted
    return {"num_classes": count_classes(dataset), "prior": "known" if dataset.class_sizes else "uniform"}


def own_settings(dataset: Dataset, device: torch.device, config: Config) -> dict[str, Any]:
    """Network, views and size, likewise."""
    if dataset.has_features:
        return {"network": "mlp", "augment": "features"}
    size = min(typical_side(dataset), LARGEST_SIDE[device.type])
    chosen = network_and_views(size, device)
    if not config.options.method().uses_labels and chosen["augment"] in ("cifar", "tiny"):
        chosen["augment"] = "simclr"  # which tells more apart
    return {"image_size": size, **chosen}


def batch_sizes(world: OpenWorld) -> dict[str, int]:
    """As large as pays on the device; of a small set, half of it."""
    labelled, unlabelled = (256, 256) if world.training.device.type == "cuda" else (64, 128)
    num_labelled, num_unlabelled = len(world.training.labelled), len(world.training.unlabelled)
    return {
        "batch_labelled": max(2, min(labelled, (num_labelled + num_unlabelled) // 2)),
        "batch_unlabelled": max(1, min(unlabelled, num_unlabelled // 2)),
    }


def count_classes(dataset: Dataset) -> int:
    """As many as are named anywhere; if only the labelled ones are, as many again."""
    num_named, num_seen = len(dataset.class_names), len(dataset.classes_shown)
    return num_named if num_named > num_seen else min(2 * num_seen, len(dataset.train))


def network_and_views(size: int, device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"network": "small" if size <= 16 else "small-32" if size <= 40 else "small-64", "augment": "cifar"}
    if size <= 40:
        return {"network": "resnet18-cifar", "augment": "cifar"}
    return (
        {"network": "resnet18-tiny", "augment": "tiny"} if size <= 96 else {"network": "resnet18", "augment": "photos"}
    )


def typical_side(dataset: Dataset, samples: int = 200) -> int:
    """The median of the shorter sides of some images; in memory all have one size."""
    content = dataset.train.content
    if not isinstance(content, Files):
        return max(8, min(content.shape[1:3]))
    sides = []
    for position in range(0, len(content), -(-len(content) // samples)):
        try:
            sides.append(min(image_size(Path(content.full_path(position)).read_bytes())))
        except (BadImage, OSError):  # the survey of all files will name it
            continue
    return max(8, int(np.median(sides))) if sides else LARGEST_SIDE["cpu"]
