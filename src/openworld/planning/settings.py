"""The settings of a run, in order of precedence: defaults < recipe < settings that follow from the data < request."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from openworld.core.config import (
    CLUSTERS,
    FEATURES_RUN,
    NCD,
    NO_BACKBONE,
    Config,
    Problem,
    Training,
    methods_of,
    refuse_unknown_method,
)
from openworld.core.errors import UserError, did_you_mean, named
from openworld.core.fields import by_keys, options, replace
from openworld.core.recipes import RECIPES, recipe_for
from openworld.data.benchmarks import BENCHMARKS
from openworld.data.dataset import Dataset, Files
from openworld.data.decode import BadImage, image_size
from openworld.data.opening import stable_name
from openworld.data.prior import is_prior_file
from openworld.data.problem import OpenWorld
from openworld.methods import METHODS
from openworld.nets.backbones import DEFAULT, PACKAGES, Backbone, find_backbone, installed_file
from openworld.runs.folder import RunFolder

FEATURE_TRAINING: dict[str, Any] = {"lr": 0.005, "muon": 0.0}
"""Settings of training that begins with clusters of features."""
FEWEST_FEATURES = 128
"""Number of features from which they are taken for those of a network."""
SMALLEST_PHOTO = 32
"""Side in pixels from which own images go through a backbone by default; smaller ones were not tried."""
LARGEST_SIDE = {"cpu": 64, "cuda": 256, "mps": 256}
"""Largest side in pixels to which images of user data are resized. On a GPU it is 256, and a view shows 224 of them."""


def recipe_config(requested: dict[str, Any]) -> Config:
    """Return the configuration of the recipe for the requested data. This does not open the data."""
    data = stable_name(requested.get("data", Config.data))
    if "method" in requested:
        refuse_unknown_method(requested["method"])
    recipe = recipe_for(requested.get("recipe", "auto"), data, data in BENCHMARKS, requested.get("method"))
    return replace(RECIPES[recipe](data), {"recipe": recipe})


def with_keys(requested: dict[str, Any]) -> dict[str, Any]:
    """Return the settings by their keys.

    An option without a method's name belongs to the method of the run, or to that of the features it starts from.
    """
    recipe = recipe_config(requested)
    return by_keys(
        requested, *methods_of(requested.get("method", recipe.method), requested.get("start", recipe.training.start))
    )


def resolve_settings(requested: dict[str, Any], dataset: Dataset, device: torch.device) -> Config:
    """Return the whole configuration. The keys of `requested` are those of `with_keys`."""
    config = recipe_config(requested)
    requested = {**requested, "recipe": config.recipe, "data": config.data}
    config = replace(config, {**class_settings(dataset, requested), "method": requested.get("method", config.method)})
    backbone = requested.get("backbone") or usual_backbone(config, dataset, requested)
    if backbone != NO_BACKBONE:
        config = replace(config, backbone_settings(find_backbone(backbone), dataset))
    elif config.recipe == "own":
        config = replace(config, own_settings(dataset, device, config))
    if dataset.has_features or backbone != NO_BACKBONE:
        config = replace(config, feature_settings(config, dataset, requested))
    start = requested.get("start")
    if start not in (None, FEATURES_RUN, CLUSTERS):
        try:
            RunFolder.open(Path(start))
        except UserError as error:
            raise UserError(f"{named('start')} {error}{did_you_mean(start, [FEATURES_RUN, CLUSTERS])}") from None
        requested |= {"start_steps": None}
    methods = methods_of(config.method, requested.get("start", config.training.start))
    used = {option.key for option in options(*methods)}
    resolved = replace(config, with_absolute_paths({key: value for key, value in requested.items() if key in used}))
    refuse_unused_settings(requested, config, resolved, dataset)
    return with_checked_steps(resolved, requested)


def with_checked_steps(config: Config, requested: dict[str, Any]) -> Config:
    """Set the steps to 0 for a method that is fitted once. Raise a UserError if the steps do not fit the method."""
    if config.options.method().makes_steps:
        if not config.training.steps:
            raise UserError(f"{named('steps')} is 0; it must be 1 or more")
        return config
    if requested.get("steps"):
        raise UserError(
            f"{named('steps')} has no effect: {config.method} is fitted once, without training steps; leave it out"
        )
    return replace(config, {"steps": 0})


def with_absolute_paths(requested: dict[str, Any]) -> dict[str, Any]:
    """Make paths absolute, so that they are valid in every working directory."""
    paths = {}
    if "data" in requested:
        paths["data"] = stable_name(requested["data"])
    if is_prior_file(requested.get("prior")) and Path(requested["prior"]).is_file():
        paths["prior"] = str(Path(requested["prior"]).absolute())
    if requested.get("start") not in (None, FEATURES_RUN, CLUSTERS):
        paths["start"] = str(Path(requested["start"]).absolute())
    backbone = requested.get("backbone") or NO_BACKBONE
    if backbone not in (NO_BACKBONE, *PACKAGES) and Path(backbone).exists():
        paths["backbone"] = str(Path(backbone).absolute())
    return {**requested, **paths}


def refuse_unused_settings(requested: dict[str, Any], recipe: Config, config: Config, dataset: Dataset) -> None:
    """Raise a UserError for a requested setting that has no effect.

    Requests of the default value, or of the recipe's value, are accepted.
    """
    for name in ("novel", "labelled", "imbalance"):
        if dataset.is_labelled is not None and requested.get(name, getattr(Problem, name)) != getattr(Problem, name):
            already = f"{dataset.name} already has labelled and unlabelled samples"
            raise UserError(f"{named(name)} works only with fully labelled data, but {already}; leave it out")
    for name, needed in config.options.needs.items():
        default, from_recipe = (getattr(each, name) for each in (type(config.options), recipe.options))
        value = requested.get(f"{config.method}.{name}", default)
        if value not in (default, from_recipe) and not getattr(config.options, needed):
            setting, other = named(name), named(needed)
            raise UserError(f"{setting} works only with {other}; add {other} or leave {setting} out")
    has_backbone = config.training.backbone != NO_BACKBONE
    for name, has_effect, needed in (
        ("finetune", has_backbone, named("backbone")),
        ("backbone_views", has_backbone and not config.training.finetune, f"a {named('backbone')} that is not trained"),
    ):
        if not has_effect and requested.get(name, getattr(Training, name)) != getattr(Training, name):
            raise UserError(f"{named(name)} works only with {needed}; leave it out")
    for option in options(*METHODS):
        is_of_other_method = option.section in METHODS.keys() - {*config.methods}
        if is_of_other_method and requested.get(option.key, option.default) != option.default:
            setting, method = named(option.key), named("method", option.section)
            raise UserError(f"{setting} works only with {method}; add {method} or leave {setting} out")
    if dataset.has_features and requested.get("image_size"):
        raise UserError(
            f"{named('image_size')} works only with images, but {dataset.name} contains features; leave it out"
        )


# Settings that follow from the data -------------------------------------------------------------------------


def class_settings(dataset: Dataset, requested: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the classes, by key: their number, known or assumed, the prior, and how many labels."""
    if dataset.is_labelled is None:  # all samples have a label, so the class sizes can be counted
        labels = {"labelled": 100.0} if requested.get("task") == NCD else {}
        return {"prior": "known", **labels}
    return {"num_classes": count_classes(dataset), "prior": "known" if dataset.class_sizes else "even"}


def own_settings(dataset: Dataset, device: torch.device, config: Config) -> dict[str, Any]:
    """Return the network, the augmentation and the image size for user data without a backbone, by key."""
    if dataset.has_features:
        return {"augment": "features"}
    size = min(typical_side(dataset), LARGEST_SIDE[device.type])
    chosen = network_and_views(size, device)
    if not config.options.method().uses_labels and chosen["augment"] in ("cifar", "tiny"):
        chosen["augment"] = "simclr"  # its views differ more from each other
    return {"image_size": size, **chosen}


def usual_backbone(config: Config, dataset: Dataset, requested: dict[str, Any]) -> str:
    """Return the backbone for data if the user names none: for own photos the default one, if it is installed."""
    wants_another_network = requested.keys() & {"network", "start", "start_steps"}
    takes_it = config.recipe == "own" and has_photos(dataset) and not wants_another_network
    return DEFAULT if takes_it and installed_file(DEFAULT) else NO_BACKBONE


def has_photos(dataset: Dataset) -> bool:
    """Return whether the data are coloured photos of enough pixels (docs/findings.md#finding-small-photos)."""
    content = dataset.train.content
    is_coloured = isinstance(content, Files) or (content.ndim == 4 and content.shape[3] == 3)
    return is_coloured and typical_side(dataset) >= SMALLEST_PHOTO


def backbone_settings(backbone: Backbone, dataset: Dataset) -> dict[str, Any]:
    """Return the settings of the images for a backbone, by key. Images in memory keep their size."""
    side = backbone.description.stored_side if dataset.has_files else typical_side(dataset)
    size = {"image_size": side} if dataset.has_files else {}
    return {"backbone": backbone.description.name, "augment": "photos" if side > 96 else "cifar", **size}


def feature_settings(config: Config, dataset: Dataset, requested: dict[str, Any]) -> dict[str, Any]:
    """Return the settings for training on features, by key. Those of a network are good: begin with their clusters.

    Features of few dimensions are measurements, not the output of a network: a network must still learn from them. The
    same holds where nothing is to be discovered, because all samples have labels.
    """
    if dataset.has_features and (dataset.train.content.shape[1] < FEWEST_FEATURES or dataset.class_sizes):
        return {"network": "mlp"}
    if not config.options.method().uses_labels:
        return {"network": "adapter"}
    begins = requested.get("network", "adapter") in ("adapter", "identity")
    return {"network": "adapter", **({"start": CLUSTERS, **FEATURE_TRAINING} if begins else {})}


def batch_sizes(world: OpenWorld) -> dict[str, int]:
    """Return batch sizes that use the device well. For a small set, a batch is at most half of it."""
    labelled, unlabelled = (64, 128) if world.training.device.type == "cpu" else (256, 256)
    num_labelled, num_unlabelled = len(world.training.labelled), len(world.training.unlabelled)
    return {
        "batch_labelled": max(2, min(labelled, (num_labelled + num_unlabelled) // 2)),
        "batch_unlabelled": max(1, min(unlabelled, num_unlabelled // 2)),
    }


def names_all_classes(dataset: Dataset) -> bool:
    """Return whether the data name the novel classes too: in a fully labelled set, a test part, or a manifest."""
    return dataset.is_labelled is None or len(dataset.class_names) > len(dataset.classes_shown)


def count_classes(dataset: Dataset) -> int:
    """Return the number of class names. If only seen classes have names, return twice their number."""
    if names_all_classes(dataset):
        return len(dataset.class_names)
    return min(2 * len(dataset.classes_shown), len(dataset.train))


def network_and_views(size: int, device: torch.device) -> dict[str, Any]:
    """Return the network and the augmentation for images of this size."""
    if device.type == "cpu":
        return {"network": "small" if size <= 16 else "small-32" if size <= 40 else "small-64", "augment": "cifar"}
    if size <= 40:
        return {"network": "resnet18-cifar", "augment": "cifar"}
    return (
        {"network": "resnet18-tiny", "augment": "tiny"} if size <= 96 else {"network": "resnet18", "augment": "photos"}
    )


def typical_side(dataset: Dataset, samples: int = 200) -> int:
    """Return the median of the shorter sides of some image files. Images in memory all have the same size."""
    content = dataset.train.content
    if not isinstance(content, Files):
        return max(8, min(content.shape[1:3]))
    sides = []
    for position in range(0, len(content), -(-len(content) // samples)):
        try:
            sides.append(min(image_size(Path(content.full_path(position)).read_bytes())))
        except (BadImage, OSError):  # the survey of all files reports it
            continue
    return max(8, int(np.median(sides))) if sides else LARGEST_SIDE["cpu"]
