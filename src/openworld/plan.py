"""Before a run: the recipe for the data; for a person's own, size, network, views and length follow by themselves."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from openworld.config import FOR_EVERY_METHOD, NEEDS, Config, Problem, did_you_mean, flatten, options, replace
from openworld.data.benchmarks import BENCHMARKS
from openworld.data.dataset import Dataset, Files
from openworld.data.decode import SUFFIXES, BadImage, image_size
from openworld.data.opening import found_again, open_dataset
from openworld.data.own import kinds_of
from openworld.data.problem import OpenWorld, TrainingSet, is_file_of_shares, pose
from openworld.engine import CALLS_BEFORE_RECORDING, wait_for
from openworld.errors import UserError
from openworld.learner import Learner
from openworld.methods import METHODS
from openworld.nets import frozen
from openworld.progress import duration
from openworld.recipes import RECIPES, recipe_for
from openworld.record import FEATURES_RUN, RunFolder
from openworld.runtime import Runtime

OWN_MINUTES, FEATURES_MINUTES = 5.0, 1.5
"""How long training on a person's own data takes unless they say otherwise; and if it only learns features."""
LARGEST_SIDE = {"cpu": 64, "cuda": 256}
"""Of the images of own data. On a GPU 256, of which a view shows 224."""
MOST_PASSES = 200
"""Over the unlabelled samples: more than this helps nobody."""
FEWEST_STEPS, FEWEST_ROWS = 20, 8
PASSES_AND_VIEWS = ((10, 10), (10, 5), (5, 5), (4, 3), (2, 2))
"""Epochs of a run, and views by which uncertainty is measured: the first pair that leaves time to train."""
SHARE_OF_PASSES = 0.3
PASSES_OF_CLUSTERS = 4
"""Over all samples: as long as it takes to find clusters of their features, once."""


@dataclass(frozen=True)
class Plan:
    """What is going to be done."""

    config: Config
    world: OpenWorld
    lines: tuple[str, ...]
    """For a person to read."""


def plan_run(
    asked: dict[str, Any],
    runtime: Runtime,
    minutes: float | None = None,
    dataset: Dataset | None = None,
    count_is_estimated: bool = False,
) -> Plan:
    """A configuration and its problem; `minutes` sets the number of steps by measuring what one costs here."""
    refuse_bad_length(asked, minutes)
    config, dataset = settle(asked, runtime, dataset)
    is_own = config.recipe == "own"
    world = pose(config, runtime, dataset=dataset)
    if is_own:
        config = replace(config, {name: rows for name, rows in batch_sizes(world).items() if name not in asked})
    if is_own and minutes is None and "steps" not in asked:
        minutes = OWN_MINUTES if METHODS[config.method].uses_labels else FEATURES_MINUTES
    seconds = None
    if minutes is not None:
        config, costs = fit_to_memory(config, world.training, runtime, set(asked))
        config, seconds = fit_to_time(config, world, costs, minutes * 60, set(asked))
    source = "estimated" if count_is_estimated else "as you say" if "num_classes" in asked else None
    is_told = is_own or seconds or dataset.is_labelled is not None
    lines = describe(config, dataset, world, seconds, source) if is_told else ()
    return Plan(config, world, tuple(lines))


def refuse_bad_length(asked: dict[str, Any], minutes: float | None) -> None:
    if minutes is not None and "steps" in asked:
        raise UserError("--minutes and --steps both say how long to train: give one of them")
    if minutes is not None and not 0 < minutes < math.inf:
        raise UserError(f"--minutes is {minutes}; it must be above 0")


def recipe_config(asked: dict[str, Any], in_memory: bool = False) -> Config:
    """The recipe for the data that was asked for: what can be known without opening it."""
    data = asked.get("data", "digits")
    data = data if in_memory else found_again(data)
    is_benchmark = not in_memory and data in BENCHMARKS
    recipe = recipe_for(asked.get("recipe", "auto"), data, is_benchmark, asked.get("method", "trssl"))
    return replace(RECIPES[recipe](data), {"recipe": recipe})


def settle(asked: dict[str, Any], runtime: Runtime, dataset: Dataset | None = None) -> tuple[Config, Dataset]:
    """Defaults < recipe < what follows from the data < what was asked for, by flat names."""
    config = recipe_config(asked, in_memory=dataset is not None)
    dataset = dataset or open_dataset(config.data, runtime.data_dir)
    asked = {**asked, "recipe": config.recipe, "data": config.data}
    config = replace(config, class_settings(dataset))
    if config.recipe == "own":
        config = replace(config, own_settings(dataset, runtime.device, asked.get("method", config.method)))
    start = asked.get("start")
    if start not in (None, FEATURES_RUN):
        try:
            RunFolder.open(Path(start))
        except UserError as error:
            raise UserError(f"--start {error}{did_you_mean(start, [FEATURES_RUN])}") from None
        asked |= {"start_steps": None}
    refuse_idle_settings(asked, config, dataset)
    return replace(config, with_whole_paths(asked)), dataset


def with_whole_paths(asked: dict[str, Any]) -> dict[str, Any]:
    """With files and folders as they are found from every working directory."""
    paths = {}
    if "data" in asked:
        paths["data"] = found_again(asked["data"])
    if is_file_of_shares(asked.get("prior")) and Path(asked["prior"]).is_file():
        paths["prior"] = str(Path(asked["prior"]).absolute())
    if asked.get("start") not in (None, FEATURES_RUN):
        paths["start"] = str(Path(asked["start"]).absolute())
    return {**asked, **paths}


def refuse_idle_settings(asked: dict[str, Any], usual: Config, dataset: Dataset) -> None:
    """What was asked for in vain. A default asks for nothing, nor does what would be so anyway."""
    for name in ("novel", "labelled", "imbalance"):
        if dataset.is_labelled is not None and asked.get(name, getattr(Problem, name)) != getattr(Problem, name):
            raise UserError(f"--{name} turns a fully labelled set into a problem; {dataset.name} is one already")
    config = replace(usual, asked)
    method_options, usual_options = (getattr(each, config.method) for each in (config, usual))
    for name, needed in NEEDS.items():
        asks_nothing = [getattr(each, name, None) for each in (type(method_options), usual_options)]
        if name in asked and asked[name] not in asks_nothing and not getattr(method_options, needed, True):
            flag, other = (f"--{part.replace('_', '-')}" for part in (name, needed))
            raise UserError(f"{flag} does nothing without {other}: add that, or leave {flag} out")
    methods = {config.method, *([FEATURES_RUN] if config.training.start == FEATURES_RUN else [])}
    for option in options():
        is_of_other = option.path[0] in METHODS.keys() - methods and option.name not in FOR_EVERY_METHOD
        if is_of_other and asked.get(option.name, option.default) not in (option.default, flatten(usual)[option.name]):
            flag = f"--{option.name.replace('_', '-')}"
            raise UserError(f"{flag} is for --method {option.path[0]}: leave it out")
    if dataset.has_features and asked.get("image_size"):
        raise UserError(f"--image-size is for images, and {dataset.name} holds features: leave it out")


# What follows from the data ---------------------------------------------------------------------------------


def class_settings(dataset: Dataset) -> dict[str, Any]:
    """What is known of the classes, or assumed; fields of the configuration, by their flat names."""
    if dataset.is_labelled is None:
        return {"prior": "known"}  # the labels are there to be counted
    return {"num_classes": count_classes(dataset), "prior": "uniform"}  # nobody has counted them


def own_settings(dataset: Dataset, device: torch.device, method: str) -> dict[str, Any]:
    """Network, views and size, likewise."""
    if dataset.has_features:
        return {"network": "mlp", "augment": "features"}
    size = min(typical_side(dataset), LARGEST_SIDE[device.type])
    chosen = network_and_views(size, device)
    if not METHODS[method].uses_labels and chosen["augment"] in ("cifar", "tiny"):
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


# What follows from the memory and the time ------------------------------------------------------------------


class Costs(NamedTuple):
    """In seconds."""

    step: float
    """A training step."""
    sample: float
    """A sample that passes through the network in a random view."""


def fit_to_memory(config: Config, data: TrainingSet, runtime: Runtime, asked: set[str]) -> tuple[Config, Costs]:
    """What is done costs this much; batches whose size nobody asked for are halved until the device can hold them."""
    free = {"batch_labelled", "batch_unlabelled"} - asked
    while True:
        try:
            return config, measure_costs(config, data, runtime)
        except torch.OutOfMemoryError:
            halves = {name: getattr(config.training, name) // 2 for name in free}
            if min(halves.values(), default=0) < FEWEST_ROWS:
                raise
        config = replace(config, halves)
        torch.cuda.empty_cache()


def fit_to_time(
    config: Config, world: OpenWorld, costs: Costs, seconds: float, asked: set[str]
) -> tuple[Config, float]:
    """As many steps as fit, passes over the whole set included; and the seconds that this is going to take."""
    step_seconds, sample_seconds = costs
    sizes = {part: len(truth.samples) for part, truth in world.truths.items()}
    num_train, num_all = sizes["unlabelled"], sum(sizes.values())
    num_judged = sizes[world.judged_part] if world.judged_part else 0

    is_uncertain = config.method == "trssl" and config.trssl.uncertainty

    is_clustered = not METHODS[config.method].trains_head

    def seconds_of_epoch(views: int) -> float:
        uncertainty = is_uncertain * (1 - config.trssl.uncertainty_from) * num_train * views
        clusters = is_clustered * PASSES_OF_CLUSTERS * (len(world.training.labelled) + num_train)
        return sample_seconds * (uncertainty + clusters + 2 * num_judged)

    def seconds_of_passes(epochs: int, views: int) -> float:
        return epochs * seconds_of_epoch(views) + sample_seconds * (views + 1) * num_all

    affordable = [pair for pair in PASSES_AND_VIEWS if seconds_of_passes(*pair) <= SHARE_OF_PASSES * seconds]
    epochs, views = affordable[0] if affordable else PASSES_AND_VIEWS[-1]
    if "uncertainty_views" in asked:
        views = config.trssl.uncertainty_views
    if "epoch_steps" in asked:  # then every step brings its share of an epoch's passes
        epochs, step_seconds = 0, step_seconds + seconds_of_epoch(views) / config.training.epoch_steps
    passes = seconds_of_passes(epochs, views)
    most = max(500, MOST_PASSES * num_train // config.training.batch_unlabelled)
    steps = min(max(FEWEST_STEPS, int((seconds - passes) / step_seconds)), most)
    chosen = {"steps": steps, "epoch_steps": -(-steps // max(epochs, 1)), "uncertainty_views": views}
    chosen = {name: value for name, value in chosen.items() if name not in asked}
    return replace(config, chosen), steps * step_seconds + passes


def measure_costs(config: Config, data: TrainingSet, runtime: Runtime) -> Costs:
    learner = Learner(config, data, runtime)
    random_answer = learner.batches.answers(frozen(learner.network), "measure", 0)
    chunk = next(data.unlabelled.chunks(learner.batches.rows))

    def pass_through() -> None:
        with torch.no_grad():
            random_answer(chunk)

    step_seconds = seconds_of(learner.learn, runtime.device)
    return Costs(step_seconds, seconds_of(pass_through, runtime.device) / len(chunk))


def seconds_of(work: Callable[[], None], device: torch.device, enough: float = 3.0) -> float:
    """The median of some tries, after those that also set things up."""
    first = CALLS_BEFORE_RECORDING + 1 if device.type == "cuda" else 1
    tries, began = [], time.monotonic()
    for attempt in range(50):
        start = time.monotonic()
        work()
        wait_for(device)
        if attempt >= first:
            tries.append(time.monotonic() - start)
        if len(tries) >= 2 and time.monotonic() - began > enough:
            break
    return statistics.median(tries)


# What a person reads ----------------------------------------------------------------------------------------


def describe(
    config: Config, dataset: Dataset, world: OpenWorld, seconds: float | None, source: str | None
) -> list[str]:
    training, kind = config.training, "samples" if dataset.has_features else "images"
    lines = []
    if dataset.is_labelled is not None:
        num_seen = len(dataset.classes_shown)
        tested = f", {len(world.truths['test'].samples):,} for testing" if dataset.test else ""
        lines.append(
            f"{dataset.name}: {len(world.training.labelled):,} labelled {kind} of {num_seen} classes, "
            f"{len(world.training.unlabelled):,} unlabelled{tested}"
        )
        if world.dropped:
            lines.append(f"left out: {len(world.dropped):,} broken images, which split.json names")
        if dataset.left_out:
            lines.append(f"left out: {kinds_of(dataset.left_out)} (images end in {', '.join(sorted(SUFFIXES))})")
        total = config.problem.num_classes
        if source is None and len(dataset.class_names) > num_seen:
            source = "named in the test part or the manifest"
        elif source is None:
            source = "assumed: as many new ones as known ones; --num-classes says how many, auto estimates them"
        lines.append(f"classes: {total}, of which {total - num_seen} are new ({source})")
    if not dataset.has_features and training.image_size:
        lines.append(f"images at {training.image_size} x {training.image_size} pixels, network {training.network}")
    labelled, which = f"{training.batch_labelled} labelled + ", "unlabelled"
    if not METHODS[config.method].uses_labels:
        labelled, which = "", kind
    length = f"{training.steps:,} steps of {labelled}2 x {training.batch_unlabelled} {which}"
    lines.append(f"{length}: {f'about {duration(seconds)} from now (--minutes)' if seconds else 'as you say'}")
    return lines
