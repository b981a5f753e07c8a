"""Which recorded run belongs to which row of an item, and what the row calls it."""

import tomllib
from typing import Any

from openworld.core.config import Config, Training
from openworld.core.config_files import restored_config
from openworld.core.fields import by_keys, flatten, folder_name, replace
from openworld.core.recipes import RECIPES
from openworld.paper.items import NUM_CLASSES, Item, Row

PROTOCOL = {"protocol": "trssl", "part": "test", "dropped_images": 0}
"""Values that a result must have to be comparable with the paper, by field."""
PROBLEM = {"task": "open-world", "novel": 50.0, "labelled": 10.0, "imbalance": 1.0, "prior": "known"}
"""The problem of a row, where its settings say nothing else."""
FIELDS = {"novel": "novel_share"}
"""Names of settings in results, where they differ."""
SHOWN_ELSEWHERE = (*PROBLEM, "data", "recipe", "seed", "num_classes", "steps", "start", "start_steps")
"""Settings that a row shows in another way, or that decide which row a run belongs to."""

MOST_EPOCHS = 10
"""Number of epochs that a shorter run has at least, if its recipe has as many."""


def problem_of(row: Row) -> dict[str, Any]:
    """Return the settings of the problem of a row."""
    labelled = {"labelled": 100.0} if row.settings.get("task") == "ncd" else {}
    return {name: row.settings.get(name, value) for name, value in {**PROBLEM, **labelled}.items()}


def objections(result: dict[str, Any], item: Item, row: Row) -> list[str]:
    """Return the reasons why a result does not belong to a row with its data set; empty if it belongs there."""
    wanted = {FIELDS.get(name, name): value for name, value in problem_of(row).items()} | PROTOCOL
    wanted["num_classes_estimated"] = row.num_classes is None
    if row.num_classes is not None:
        wanted["num_classes"] = row.num_classes
    has = {"task": "open-world", **result}
    found = [f"{name} is {has.get(name)}, not {value}" for name, value in wanted.items() if has.get(name) != value]
    start_run = result.get("start_run", {})
    if result.get("start") and "config" not in start_run:
        found.append("the run that it started from is not recorded with it")
    if start_run.get("start"):
        found.append("the run that it started from itself started from another run, which is not recorded with it")
    if start_run and start_run["dataset"] != result["dataset"]:
        found.append(f"the run that it started from was trained on other images ({start_run['dataset']})")
    for stage in (result, start_run):
        if stage.get("recipe", "paper") not in RECIPES:
            found.append(f"the recipe {stage['recipe']} no longer exists")
    if item.recipe not in ("auto", result["recipe"]):
        found.append(f"the recipe is {result['recipe']}, not {item.recipe}")
    return found or different_settings(result, item, row)


def different_settings(result: dict[str, Any], item: Item, row: Row) -> list[str]:
    """Return the settings that the rows of an item vary, beside the problem, and that a result has otherwise."""
    config, recipe = config_of(result), RECIPES[result["recipe"]](result["dataset"])
    names = [name for name in item.varied if name not in SHOWN_ELSEWHERE]
    has = by_keys(dict.fromkeys(names), *config.methods)
    expected = flatten(replace(recipe, {"method": config.method}))
    expected |= by_keys({name: row.settings[name] for name in names if name in row.settings}, *config.methods)
    values = flatten(config)
    return [f"{key} is {values[key]}, not {expected[key]}" for key in has if values.get(key) != expected.get(key)]


def fitting(results: list[dict[str, Any]], item: Item, row: Row) -> list[dict[str, Any]]:
    """Return the results that belong to a row.

    They are sorted by recipe and steps. Those without a start run and without changed flags come first.
    """
    found = [each for each in results if each["dataset"] == row.data and not objections(each, item, row)]
    key = lambda run: (run["recipe"], run["steps"], "start_run" in run, changed_flags(run, row))  # noqa: E731
    return sorted(found, key=key)


def label_of(result: dict[str, Any], row: Row) -> str:
    """Return the label of a result in a row. It does not depend on the seed, so all seeds share a label.

    A record with a label of its own is a trial, which the notes of the item describe.
    """
    recipe, before, start_run = result.get("label") or recipe_and_flags(result, row), "", result.get("start_run")
    if start_run:
        before = f"{recipe_and_flags(start_run)} {start_run['steps']:,} + "
    is_relayed = result.get("relayed") or (start_run and start_run.get("relayed"))
    return f"{row.name}, {recipe}, {before}{result['steps']:,} steps{', relayed' if is_relayed else ''}"


def recipe_and_flags(result: dict[str, Any], row: Row | None = None) -> str:
    """Return the name of the recipe, followed by the settings that differ from it."""
    return " ".join([result["recipe"], *changed_flags(result, row)])


def changed_flags(result: dict[str, Any], row: Row | None = None) -> list[str]:
    """Return the settings of a run that differ from its recipe as it is today and from its row, as flags.

    The flags keep a trial from looking like a run of the recipe. A setting that was added after the run counts as its
    default, which changes nothing. A shorter run may have shorter epochs. For SimCLR, `epoch_steps` does not count:
    only the last epoch matters, because SimCLR sets its head at the end of it.
    """
    config = config_of(result)
    recipe = RECIPES[result["recipe"]](result["dataset"])
    ignored = (*SHOWN_ELSEWHERE, "epoch_steps") if result["method"] == "simclr" else SHOWN_ELSEWHERE
    expected = flatten(replace(recipe, {"method": config.method, "start": config.training.start}))
    of_row = {name: value for name, value in (row.settings if row else {}).items() if name not in SHOWN_ELSEWHERE}
    expected |= by_keys(of_row, *config.methods)
    if config.training.epoch_steps == shorter_epochs(recipe.training, config.training.steps):
        expected["epoch_steps"] = config.training.epoch_steps
    changed = ["method"] if config.method != recipe.method else []
    changed += [key for key, value in flatten(config).items() if key not in ignored and value != expected[key]]
    return [as_flag(key, flatten(config)[key]) for key in changed]


def shorter_epochs(recipe: Training, steps: int) -> int:
    """Return the steps of an epoch for a run that is shorter than its recipe: it has as many epochs, at most ten."""
    epochs = min(MOST_EPOCHS, recipe.steps // recipe.epoch_steps)
    return min(recipe.epoch_steps, max(1, steps // epochs))


def variant_of(result: dict[str, Any]) -> str:
    """Return what distinguishes a result from one of its recipe on the usual problem, as a part of a file name."""
    has = {"task": "open-world", **result}
    defaults = {**PROBLEM, "num_classes": NUM_CLASSES.get(result["dataset"])}
    del defaults["labelled"]  # the name shows it in another way
    values = {name: has[FIELDS.get(name, name)] for name in defaults}
    differing = {name: value for name, value in values.items() if value != defaults[name]}
    flags = [flag.strip("-").replace(" ", "-") for flag in changed_flags(result)]
    return "-".join([*([folder_name(differing)] if differing else []), *flags])


def config_of(result: dict[str, Any]) -> Config:
    """Return the configuration of a recorded run."""
    return restored_config(tomllib.loads(result["config"]), "a recorded result", is_whole=False)[0]


def as_flag(key: str, value: Any) -> str:
    """Return a setting as a command-line flag."""
    flag = key.rpartition(".")[-1].replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value:g}" if isinstance(value, float) else f"--{flag} {value}"
