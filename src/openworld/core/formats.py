"""The format versions of run folders and checkpoints, and the upgrades from older ones.

This module does not import torch.

The key `format` of a configuration is the version of the configuration and of its run folder. The first version had no
such key. If a change makes older files unreadable, or changes their meaning, raise the number and add an upgrade
function here. tests/formats/ holds samples of every version.
"""

from collections.abc import Callable
from typing import Any

FORMAT = 4
"""Format version of a configuration and of its run folder."""
CHECKPOINT_FORMAT = 3
"""Format version of a checkpoint."""

Tree = dict[str, Any]
"""A configuration file as a dict: values, and sections of values."""


# Configurations -----------------------------------------------------------------------------------------------

ADDED_TO_TRSSL = {"queue": 0, "queue_from": 0.2, "shared_labels": False, "strong_views": False, "balance": False}
"""Options of trssl in the first format that belong to trssl+ now, with their defaults of that time: all off."""
FOR_ANSWERS = ("temperature", "uncertainty_views")
"""Settings that were in the section [trssl] in the first format and are in [answers] now."""


def upgraded_config(tree: Tree) -> Tree:
    """Return the configuration in the current format, without the key `format`."""
    tree = {name: dict(value) if isinstance(value, dict) else value for name, value in tree.items()}
    for version in range(format_of(tree), FORMAT):
        tree = CONFIG_UPGRADES[version](tree)
    return {name: value for name, value in tree.items() if name != "format"}


def format_of(tree: Tree) -> int:
    """Return the format version of a configuration.

    A file that a user wrote may lack the key. Then it has the first format only if it contains settings in places where
    only the first format had them.
    """
    if "format" in tree:
        return tree["format"]
    section = tree.get("trssl")
    return 1 if isinstance(section, dict) and section.keys() & {*FOR_ANSWERS, *ADDED_TO_TRSSL} else FORMAT


def _config_from_1(tree: Tree) -> Tree:
    """Upgrade a configuration from format 1 to format 2.

    In format 1 the settings of predictions were in [trssl], and our additions to the paper's method were options of
    trssl instead of the method trssl+. Every file had the sections of all methods. BatchNorm always normalised whole
    batches, so `norm_rows` is absent.
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


def _config_from_2(tree: Tree) -> Tree:
    """Upgrade a configuration from format 2 to format 3: there were no backbones."""
    training = tree.get("training")
    without = {"backbone": "none", "backbone_views": 1, "finetune": 0}
    return {**tree, "training": {**without, **training}} if isinstance(training, dict) else tree


def _config_from_3(tree: Tree) -> Tree:
    """Upgrade a configuration from format 3 to format 4: nothing was known of the unlabelled images."""
    problem = tree.get("problem")
    return {**tree, "problem": {"task": "open-world", **problem}} if isinstance(problem, dict) else tree


CONFIG_UPGRADES: dict[int, Callable[[Tree], Tree]] = {1: _config_from_1, 2: _config_from_2, 3: _config_from_3}
"""Functions that upgrade a configuration from a version to the next one."""


def settings_from_1(settings: Tree) -> Tree:
    """Return requested settings of format 1, with flat names, under their current names.

    The settings need not be a whole configuration. The recipe decides the method, unless an option decides it: a recipe
    that used trssl in format 1 may use trssl+ now.
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
"""Tensors by name."""


def upgraded_part(name: str, read: Callable[[str], Part], version: int) -> Part:
    """Return one part of a checkpoint in the current format; `read(name)` returns a part as it was written."""
    for old_version in range(version, CHECKPOINT_FORMAT):
        read = CHECKPOINT_UPGRADES[old_version](read)
    return read(name)


def _part_from_2(read: Callable[[str], Part]) -> Callable[[str], Part]:
    """Upgrade parts from version 2: SimCLR's projection moves from the method to the head, empty queues are dropped."""

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
"""Functions that upgrade the reader of a checkpoint's parts from a version to the next one."""


def upgraded_export(weights: Part, config: Tree) -> Part:
    """Return exported weights under their current names, given the configuration that was exported with them.

    In format 1 the head of SimCLR consisted of the class vectors alone.
    """
    if config.get("format", 1) == 1 and config["method"] == "simclr":
        return {key.replace("head.weight", "head.classes.weight"): value for key, value in weights.items()}
    return weights
