"""The formats of run folders and checkpoints, and what is made of older ones. Free of torch.

A configuration says in `format` which version it, and its run folder, are of; the first had no such line. A change that
would make an older file unreadable, or read otherwise, raises the number and adds a function here; tests/formats/ holds
samples of every version.
"""

from collections.abc import Callable
from typing import Any

FORMAT = 2
"""Of a configuration and of its run folder."""
CHECKPOINT_FORMAT = 3

Tree = dict[str, Any]
"""A configuration file: values, and sections of values."""


# Configurations -----------------------------------------------------------------------------------------------

ADDED_TO_TRSSL = {"queue": 0, "queue_from": 0.2, "shared_labels": False, "strong_views": False, "balance": False}
"""What was an option of trssl in the first format and is one of trssl+ now, with the defaults of then: all off."""
FOR_ANSWERS = ("temperature", "uncertainty_views")
"""What was told in [trssl] there."""


def upgraded_config(tree: Tree) -> Tree:
    """The configuration as this version writes it; `format` is gone from it."""
    tree = {name: dict(value) if isinstance(value, dict) else value for name, value in tree.items()}
    for version in range(format_of(tree), FORMAT):
        tree = CONFIG_UPGRADES[version](tree)
    return {name: value for name, value in tree.items() if name != "format"}


def format_of(tree: Tree) -> int:
    """As the file says; one that a person wrote need not, and is of the first only if it has what only that had."""
    if "format" in tree:
        return tree["format"]
    section = tree.get("trssl")
    return 1 if isinstance(section, dict) and section.keys() & {*FOR_ANSWERS, *ADDED_TO_TRSSL} else FORMAT


def _config_from_1(tree: Tree) -> Tree:
    """How answers are made was told in [trssl]; what we had added to the paper's method was no method of its own.

    Every file had the sections of all methods. BatchNorm always saw whole batches (`norm_rows` is absent).
    """
    trssl, simclr = (tree.pop(name) if isinstance(tree.get(name), dict) else {} for name in ("trssl", "simclr"))
    for_answers = {name: trssl.pop(name) for name in FOR_ANSWERS if name in trssl}
    if for_answers:
        tree["answers"] = for_answers
    if tree.get("method") == "simclr":
        return {**tree, "simclr": simclr}
    if simclr and _start_of(tree) == "simclr":
        tree["simclr"] = simclr
    is_on = any(trssl.get(name) for name in ADDED_TO_TRSSL if name != "queue_from")
    is_plus = tree.get("recipe") in ("fast", "pretrained") or is_on
    if is_plus:
        return {**tree, "method": "trssl+", "trssl+": trssl}
    return {**tree, "trssl": {name: value for name, value in trssl.items() if name not in ADDED_TO_TRSSL}}


def _start_of(tree: Tree) -> str | None:
    training = tree.get("training")
    return training.get("start") if isinstance(training, dict) else None


CONFIG_UPGRADES: dict[int, Callable[[Tree], Tree]] = {1: _config_from_1}
"""From each version to the next."""


def settings_from_1(settings: Tree) -> Tree:
    """What a person asked for then, by the flat names of then, as names of today; it need not be a whole configuration.

    The method is left to the recipe, which had trssl then and may have trssl+ now, unless an option says which it is.
    """
    settings = dict(settings)
    of_simclr = {name: settings.pop(name) for name in ("contrast_temperature", "projection") if name in settings}
    added = {name: settings.pop(name) for name in ADDED_TO_TRSSL if name in settings}
    if settings.get("method") == "trssl" and settings.get("recipe") != "simclr":
        del settings["method"]
    if added and (added != ADDED_TO_TRSSL or settings.get("recipe") in ("fast", "pretrained")):
        settings |= {"method": "trssl+", **added}
    return {**settings, **{f"simclr.{name}": value for name, value in of_simclr.items()}}


# Checkpoints --------------------------------------------------------------------------------------------------

Part = dict[str, Any]
"""Tensors by their names."""


def upgraded_part(name: str, read: Callable[[str], Part], version: int) -> Part:
    """One part of a checkpoint; `read` gives any of its parts as they were written."""
    for before in range(version, CHECKPOINT_FORMAT):
        read = CHECKPOINT_UPGRADES[before](read)
    return read(name)


def _part_from_2(read: Callable[[str], Part]) -> Callable[[str], Part]:
    """What SimCLR projects features by was the method's, and is the head's; an empty queue was saved with any run."""

    def part(name: str) -> Part:
        tensors = read(name)
        projection = {key: tensor for key, tensor in read("method").items() if key.startswith("projection.")}
        if name == "method":
            return {key: value for key, value in tensors.items() if key not in projection and value.numel()}
        if not projection:
            return tensors
        if name == "optimizer":
            return {key.replace("method.projection.", "head.projection."): value for key, value in tensors.items()}
        renamed = {key.replace("head.weight", "head.classes.weight"): value for key, value in tensors.items()}
        return {**renamed, **{f"head.{key}": value for key, value in projection.items()}}

    return part


CHECKPOINT_UPGRADES = {2: _part_from_2}


def upgraded_export(weights: Part, config: Tree) -> Part:
    """Exported weights, whose configuration lies beside them; of SimCLR the classes were the whole head once."""
    if config.get("format", 1) == 1 and config["method"] == "simclr":
        return {key.replace("head.weight", "head.classes.weight"): value for key, value in weights.items()}
    return weights
