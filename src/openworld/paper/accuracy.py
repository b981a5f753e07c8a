"""The paper's tables of accuracies: its own rows, its rivals' as it prints them, and what we recorded."""

import shlex
import statistics
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openworld.core.config_files import restored_config
from openworld.core.errors import UserError
from openworld.core.fields import flatten, replace
from openworld.core.recipes import RECIPES, recipe_for
from openworld.paper.records import recorded_runs
from openworld.paper.tables import PARTS, Cell, Difference, Score, Table

Printed = tuple[float, float, float]
"""Seen, novel and all, in per cent."""


@dataclass(frozen=True)
class DataRows:
    """The rows of one data set."""

    num_classes: int
    paper: Printed
    """Of the paper's own method."""
    rivals: dict[str, Printed]
    paper_settings: dict[str, Any] = field(default_factory=dict)
    """What the paper sets here and nowhere else."""


@dataclass(frozen=True)
class AccuracyTable:
    title: str
    labelled: float
    rows: dict[str, DataRows]
    notes: tuple[str, ...] = ()


WARMER = {"temperature": 0.2}
TABLES = {
    "table1": AccuracyTable(
        "Accuracy with 10% of the labels of the seen classes",
        10.0,
        {
            "cifar10": DataRows(10, (94.9, 89.6, 92.2), {"UNO": (86.5, 71.2, 78.9), "ORCA": (82.8, 85.5, 84.1)}),
            "cifar100": DataRows(100, (68.5, 52.1, 60.3), {"UNO": (53.7, 33.6, 42.7), "ORCA": (52.5, 31.8, 38.6)}),
            "imagenet100": DataRows(100, (82.6, 67.8, 75.4), {"UNO": (66.0, 42.2, 53.3), "ORCA": (83.9, 60.5, 69.7)}),
        },
    ),
    "labels50": AccuracyTable(
        "Accuracy with 50% of the labels of the seen classes",
        50.0,
        {
            "cifar10": DataRows(
                10, (96.8, 92.8, 94.8), {"UNO": (91.6, 69.3, 80.5), "ORCA": (88.2, 90.4, 89.7)}, WARMER
            ),
            "cifar100": DataRows(
                100, (80.2, 49.3, 64.7), {"UNO": (68.3, 36.5, 51.5), "ORCA": (66.9, 43.0, 48.1)}, WARMER
            ),
            "tiny-imagenet": DataRows(200, (59.1, 24.2, 41.7), {"UNO": (46.5, 15.7, 30.3)}),
        },
        ("on CIFAR the paper takes a temperature of 0.2 here: --temperature 0.2 belongs to the recipe `paper`.",),
    ),
}
HEADER = ("", "Seen", "Novel", "All", "gap", "seeds", "min", "on")
NOTES = (
    "(paper): as printed. ORCA's are lenient (a seen output may stand for a novel class) and transductive (judged on "
    "the unlabelled training images); TRSSL's and ours are neither.",
    "ours: protocol trssl (strict), the official test set, the last checkpoint's averaged weights; mean ± standard "
    "deviation over seeds. gap: our All beside TRSSL's as printed.",
    "named by recipe (`openworld train --recipe`, docs/paper.md); flags: what was otherwise than in it today.",
    "paper: our run of the method as printed, where code and text differ mostly as in the authors' code; the printed "
    "length is 204,800 steps.",
    "fast, pretrained: not the method as printed. Both take another optimiser and leave out uncertainty; pretrained "
    "also begins with features learnt without labels from the same images (simclr), changes the loss, and on CIFAR-100 "
    "leaves out hard labels (docs/paper.md).",
    "min, on: minutes of training on that device, with that of such features and with compiling; without reading the "
    "data and first clusters.",
)


def table1() -> Table:
    """The table "Accuracy on CIFAR-10, CIFAR-100 and ImageNet-100", 10% of the labels."""
    return accuracy_table("table1")


def labels50() -> Table:
    """The tables of CIFAR-10, CIFAR-100 and Tiny ImageNet with 50% of the labels."""
    return accuracy_table("labels50")


def accuracy_table(item: str) -> Table:
    rows = []
    for data in TABLES[item].rows:
        not_recorded = [(f"{data}, ours: not recorded", *[None] * (len(HEADER) - 1))]
        rows += [*printed_rows(item, data), *(our_rows(item, data) or not_recorded)]
    return Table(TABLES[item].title, HEADER, rows, (*NOTES, *TABLES[item].notes))


def table_with(item: str, result: dict[str, Any]) -> Table:
    """The rows of one data set, with a run's own beneath."""
    data = result["dataset"]
    this_run = our_row(f"{label_of(result)}: this run", [result], TABLES[item].rows[data])
    rows = [*printed_rows(item, data), *our_rows(item, data), this_run]
    return Table(TABLES[item].title, HEADER, rows, (*NOTES, *TABLES[item].notes))


# Rows -------------------------------------------------------------------------------------------------------


def printed_rows(item: str, data: str) -> list[tuple[Cell, ...]]:
    """The rivals', and last the paper's own."""
    printed = {**TABLES[item].rows[data].rivals, "TRSSL": TABLES[item].rows[data].paper}
    return [
        (f"{data}, {method} (paper)", *(Score(score, None) for score in scores), None, None, None, None)
        for method, scores in printed.items()
    ]


def our_rows(item: str, data: str) -> list[tuple[Cell, ...]]:
    """A row for each way in which runs were made, over their seeds; the plainest way first."""
    fitting = [run for run in recorded_runs() if run["dataset"] == data and not objections(run, item)]
    fitting.sort(key=lambda run: (run["recipe"], run["steps"], "start_run" in run, changed_flags(run)))
    ways: dict[str, list[dict[str, Any]]] = {}
    for result in fitting:
        ways.setdefault(label_of(result), []).append(result)
    return [our_row(label, results, TABLES[item].rows[data]) for label, results in ways.items()]


def our_row(label: str, results: list[dict[str, Any]], printed: DataRows) -> tuple[Cell, ...]:
    scores = {part: over_seeds([result[part] for result in results]) for part in PARTS}
    gap = round(scores["all"].mean, 1) - printed.paper[PARTS.index("all")]  # of the numbers that are shown
    return (
        label,
        *scores.values(),
        Difference(round(gap, 1)),
        tuple(sorted(result["seed"] for result in results)),
        statistics.mean(result["total_seconds"] for result in results) / 60,
        ", ".join(sorted({result["device"].removeprefix("NVIDIA ") for result in results})),
    )


def over_seeds(scores: list[float]) -> Score:
    return Score(statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else None)


# Which run belongs where ------------------------------------------------------------------------------------

PROBLEM = {
    "protocol": "trssl",
    "part": "test",
    "novel_share": 50.0,
    "imbalance": 1.0,
    "prior": "known",
    "num_classes_estimated": False,
    "dropped_images": 0,
}
"""The fields of a result that say that it answers the paper's question."""
SAID_ELSEWHERE = ("data", "recipe", "seed", "labelled", "num_classes", "steps", "start", "start_steps")
"""Settings that a row shows, or that decide which row it is."""


def item_of(result: dict[str, Any]) -> str | None:
    """The table that has a place for this data set with this share of labels."""
    fitting = (name for name, table in TABLES.items() if table.labelled == result["labelled"])
    return next((name for name in fitting if result["dataset"] in TABLES[name].rows), None)


def objections(result: dict[str, Any], item: str) -> list[str]:
    """Why a run of a table's data set has no place in its row all the same; nothing where it has."""
    table = TABLES[item]
    wanted = {**PROBLEM, "labelled": table.labelled, "num_classes": table.rows[result["dataset"]].num_classes}
    found = [
        f"{name} is {result.get(name)}, not {value}" for name, value in wanted.items() if result.get(name) != value
    ]
    start_run = result.get("start_run", {})
    if result.get("start") and "config" not in start_run:
        found.append("what it started from is not recorded with it")
    if start_run.get("start"):
        found.append("what it started from had a start of its own, which is not recorded with it")
    if start_run and start_run["dataset"] != result["dataset"]:
        found.append(f"it started from other images, {start_run['dataset']}")
    for stage in (result, start_run):
        if stage.get("recipe", "paper") not in RECIPES:
            found.append(f"there is no recipe {stage['recipe']} any more")
    return found


def label_of(result: dict[str, Any]) -> str:
    """How a run was made, whatever its seed: runs that share it share a row."""
    way, before, start_run = way_of(result), "", result.get("start_run")
    if start_run:
        before = f"{way_of(start_run)} {start_run['steps']:,} + "
    is_relayed = result.get("relayed") or (start_run and start_run.get("relayed"))
    return f"{result['dataset']}, {way}, {before}{result['steps']:,} steps{', relayed' if is_relayed else ''}"


def way_of(result: dict[str, Any]) -> str:
    """The recipe, and what was set besides it."""
    return " ".join([result["recipe"], *changed_flags(result)])


def changed_flags(result: dict[str, Any]) -> list[str]:
    """What a run set otherwise than its recipe does today, as flags: it must not pass for a run of the recipe.

    A setting that came after the run had its default, which does nothing. Of SimCLR's epochs only the last one counts,
    at whose end its head is set.
    """
    config, _ = restored_config(tomllib.loads(result["config"]), "a recorded result", is_whole=False)
    recipe = RECIPES[result["recipe"]](result["dataset"])
    left_out = (*SAID_ELSEWHERE, "epoch_steps") if result["method"] == "simclr" else SAID_ELSEWHERE
    usual = flatten(replace(recipe, {"method": config.method, "start": config.training.start}))
    changed = ["method"] if config.method != recipe.method else []
    changed += [key for key, value in flatten(config).items() if key not in left_out and value != usual[key]]
    return [as_flag(key, flatten(config)[key]) for key in changed]


def as_flag(key: str, value: Any) -> str:
    flag = key.rpartition(".")[-1].replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value:g}" if isinstance(value, float) else f"--{flag} {value}"


# Making a row again -----------------------------------------------------------------------------------------


def training_of(item: str, data: str, recipe: str, seed: int, steps: int | None) -> tuple[str, dict[str, Any]]:
    """What trains a row again: a name for its run, and the settings."""
    if item not in TABLES:
        raise UserError(f"--run: {item} has no rows that can be trained ({' and '.join(TABLES)} have)")
    rows = TABLES[item].rows
    if data not in rows:
        raise UserError(f"--run {data}: {item} has no such row (there are {', '.join(rows)})")
    recipe = recipe_for(recipe, data, is_benchmark=True, method=None)
    settings = {"data": data, "labelled": TABLES[item].labelled, "recipe": recipe, "seed": seed}
    name = f"{item}-{data}-{recipe}-seed{seed}"
    if recipe == "paper":
        settings |= rows[data].paper_settings
    if steps is not None:  # a short try must not stand where the full run will be looked for
        settings, name = {**settings, "steps": steps}, f"{name}-{steps}-steps"
        usual = RECIPES[recipe](data).training
        if usual.start_steps:  # as much shorter as the rest
            settings["start_steps"] = max(1, usual.start_steps * steps // usual.steps)
    return name, settings


def command_of(settings: dict[str, Any], out: Path) -> str:
    """What a person would type for it."""
    flags = [as_flag(name, value) for name, value in settings.items() if name != "data"]
    return " ".join(["openworld train", settings["data"], *flags, "--out", shlex.quote(str(out)), "--resume"])
