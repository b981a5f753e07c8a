"""The accuracy tables of the paper: its own rows, the rows of other methods as it prints them, and our results."""

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
"""Seen, novel and all accuracy, in %."""


@dataclass(frozen=True)
class DataRows:
    """The printed rows of one data set."""

    num_classes: int
    paper: Printed
    """Accuracies of the paper's own method, TRSSL."""
    other_methods: dict[str, Printed]
    """Accuracies of other methods, by name."""
    paper_settings: dict[str, Any] = field(default_factory=dict)
    """Settings that the paper uses only for this row."""


@dataclass(frozen=True)
class AccuracyTable:
    """One accuracy table of the paper."""

    title: str
    labelled: float
    """Percentage of the images of the seen classes that are labelled."""
    rows: dict[str, DataRows]
    """Printed rows, by data set."""
    notes: tuple[str, ...] = ()
    """Notes for this table only."""


HIGHER_TEMPERATURE = {"temperature": 0.2}
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
                10, (96.8, 92.8, 94.8), {"UNO": (91.6, 69.3, 80.5), "ORCA": (88.2, 90.4, 89.7)}, HIGHER_TEMPERATURE
            ),
            "cifar100": DataRows(
                100, (80.2, 49.3, 64.7), {"UNO": (68.3, 36.5, 51.5), "ORCA": (66.9, 43.0, 48.1)}, HIGHER_TEMPERATURE
            ),
            "tiny-imagenet": DataRows(200, (59.1, 24.2, 41.7), {"UNO": (46.5, 15.7, 30.3)}),
        },
        (
            "--temperature 0.2: the paper uses this temperature on CIFAR with 50% of the labels, so with this flag the "
            "recipe `paper` is still the method as printed.",
        ),
    ),
}
HEADER = ("", "Seen", "Novel", "All", "gap", "seeds", "min", "on")
NOTES = (
    "Seen, Novel, All: accuracy in %. A seen class has labelled images, a novel class has none.",
    "(paper): numbers as the paper prints them. ORCA's numbers are lenient (an output of a seen class may be matched "
    "to a novel class) and transductive (evaluated on the unlabelled training images). TRSSL's numbers and ours are "
    "neither.",
    "Other rows: our numbers, under the protocol trssl (strict), on the official test set, with the averaged weights "
    "of the last checkpoint; mean ± standard deviation over seeds. gap: our All minus TRSSL's All as printed.",
    "Our rows have the name of their recipe (`openworld train --recipe`, docs/paper.md). A flag after the name is a "
    "setting that differs from the recipe of today.",
    "paper: our run of the method as printed. Where the text of the paper and the authors' code differ, it mostly "
    "follows the code. The printed length is 204,800 steps.",
    "fast, pretrained: not the method as printed. Both use another optimiser and no uncertainty temperatures. "
    "pretrained also starts from features learnt without labels from the same images (simclr), changes the loss, and "
    "on CIFAR-100 uses no hard labels (docs/paper.md).",
    "min, on: training time in minutes, and the device. The time includes training the simclr features and compiling. "
    "It does not include reading the data and computing the initial clusters.",
)


def table1() -> Table:
    """Table "Accuracy on CIFAR-10, CIFAR-100 and ImageNet-100", with 10% of the labels."""
    return accuracy_table("table1")


def labels50() -> Table:
    """Tables of CIFAR-10, CIFAR-100 and Tiny ImageNet, with 50% of the labels."""
    return accuracy_table("labels50")


def accuracy_table(item: str) -> Table:
    """Return the printed rows and our recorded rows of all data sets of an item."""
    rows = []
    for data in TABLES[item].rows:
        not_recorded = [(f"{data}, ours: not recorded", *[None] * (len(HEADER) - 1))]
        rows += [*printed_rows(item, data), *(our_rows(item, data) or not_recorded)]
    return Table(TABLES[item].title, HEADER, rows, (*NOTES, *TABLES[item].notes))


def table_with(item: str, result: dict[str, Any]) -> Table:
    """Return the rows of the data set of a result, with the result itself as the last row."""
    data = result["dataset"]
    this_run = our_row(f"{label_of(result)}: this run", [result], TABLES[item].rows[data])
    rows = [*printed_rows(item, data), *our_rows(item, data), this_run]
    return Table(TABLES[item].title, HEADER, rows, (*NOTES, *TABLES[item].notes))


# Rows -------------------------------------------------------------------------------------------------------


def printed_rows(item: str, data: str) -> list[tuple[Cell, ...]]:
    """Return the printed rows of a data set: first the other methods, last the paper's own method."""
    printed = {**TABLES[item].rows[data].other_methods, "TRSSL": TABLES[item].rows[data].paper}
    return [
        (f"{data}, {method} (paper)", *(Score(score, None) for score in scores), None, None, None, None)
        for method, scores in printed.items()
    ]


def our_rows(item: str, data: str) -> list[tuple[Cell, ...]]:
    """Return one row for each set of recorded runs that differ only in their seed.

    Rows are sorted by recipe and steps. Rows without a start run and without changed flags come first.
    """
    fitting = [run for run in recorded_runs() if run["dataset"] == data and not objections(run, item)]
    fitting.sort(key=lambda run: (run["recipe"], run["steps"], "start_run" in run, changed_flags(run)))
    by_label: dict[str, list[dict[str, Any]]] = {}
    for result in fitting:
        by_label.setdefault(label_of(result), []).append(result)
    return [our_row(label, results, TABLES[item].rows[data]) for label, results in by_label.items()]


def our_row(label: str, results: list[dict[str, Any]], printed: DataRows) -> tuple[Cell, ...]:
    """Return the row of results that differ only in their seed."""
    scores = {part: over_seeds([result[part] for result in results]) for part in PARTS}
    # The gap is that of the rounded numbers, so that readers can check it against the table.
    gap = round(scores["all"].mean, 1) - printed.paper[PARTS.index("all")]
    return (
        label,
        *scores.values(),
        Difference(round(gap, 1)),
        tuple(sorted(result["seed"] for result in results)),
        statistics.mean(result["total_seconds"] for result in results) / 60,
        ", ".join(sorted({result["device"].removeprefix("NVIDIA ") for result in results})),
    )


def over_seeds(scores: list[float]) -> Score:
    """Return the mean over seeds, and the standard deviation if there is more than one seed."""
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
"""Values that a result must have to be comparable with the paper, by field."""
SHOWN_ELSEWHERE = ("data", "recipe", "seed", "labelled", "num_classes", "steps", "start", "start_steps")
"""Settings that a row shows in another way, or that decide which row a run belongs to."""


def item_of(result: dict[str, Any]) -> str | None:
    """Return the item with a row for the data set of a result and its percentage of labels, or None."""
    fitting = (name for name, table in TABLES.items() if table.labelled == result["labelled"])
    return next((name for name in fitting if result["dataset"] in TABLES[name].rows), None)


def objections(result: dict[str, Any], item: str) -> list[str]:
    """Return the reasons why a result does not belong in a table with its data set; empty if it belongs there."""
    table = TABLES[item]
    wanted = {**PROBLEM, "labelled": table.labelled, "num_classes": table.rows[result["dataset"]].num_classes}
    found = [
        f"{name} is {result.get(name)}, not {value}" for name, value in wanted.items() if result.get(name) != value
    ]
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
    return found


def label_of(result: dict[str, Any]) -> str:
    """Return the label of the row of a result. It does not depend on the seed, so all seeds share a row."""
    recipe, before, start_run = recipe_and_flags(result), "", result.get("start_run")
    if start_run:
        before = f"{recipe_and_flags(start_run)} {start_run['steps']:,} + "
    is_relayed = result.get("relayed") or (start_run and start_run.get("relayed"))
    return f"{result['dataset']}, {recipe}, {before}{result['steps']:,} steps{', relayed' if is_relayed else ''}"


def recipe_and_flags(result: dict[str, Any]) -> str:
    """Return the name of the recipe, followed by the settings that differ from it."""
    return " ".join([result["recipe"], *changed_flags(result)])


def changed_flags(result: dict[str, Any]) -> list[str]:
    """Return the settings of a run that differ from its recipe as it is today, as flags.

    The flags keep a trial from looking like a run of the recipe. A setting that was added after the run counts as its
    default, which changes nothing. For SimCLR, `epoch_steps` does not count: only the last epoch matters, because
    SimCLR sets its head at the end of it.
    """
    config, _ = restored_config(tomllib.loads(result["config"]), "a recorded result", is_whole=False)
    recipe = RECIPES[result["recipe"]](result["dataset"])
    ignored = (*SHOWN_ELSEWHERE, "epoch_steps") if result["method"] == "simclr" else SHOWN_ELSEWHERE
    expected = flatten(replace(recipe, {"method": config.method, "start": config.training.start}))
    changed = ["method"] if config.method != recipe.method else []
    changed += [key for key, value in flatten(config).items() if key not in ignored and value != expected[key]]
    return [as_flag(key, flatten(config)[key]) for key in changed]


def as_flag(key: str, value: Any) -> str:
    """Return a setting as a command-line flag."""
    flag = key.rpartition(".")[-1].replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value:g}" if isinstance(value, float) else f"--{flag} {value}"


# Training a row ---------------------------------------------------------------------------------------------


def training_of(item: str, data: str, recipe: str, seed: int, steps: int | None) -> tuple[str, dict[str, Any]]:
    """Return a folder name and the settings for a run that trains a row again."""
    if item not in TABLES:
        raise UserError(f"--run: {item} has no rows to train; choose {' or '.join(TABLES)}")
    rows = TABLES[item].rows
    if data not in rows:
        raise UserError(f"--run {data}: no such row of {item} (choose from {', '.join(rows)})")
    recipe = recipe_for(recipe, data, is_benchmark=True, method=None)
    settings = {"data": data, "labelled": TABLES[item].labelled, "recipe": recipe, "seed": seed}
    name = f"{item}-{data}-{recipe}-seed{seed}"
    if recipe == "paper":
        settings |= rows[data].paper_settings
    if steps is not None:  # A short trial gets a name of its own, so that it is not taken for the full run.
        settings, name = {**settings, "steps": steps}, f"{name}-{steps}-steps"
        full = RECIPES[recipe](data).training
        if full.start_steps:  # The features are shortened by the same factor as the run itself.
            settings["start_steps"] = max(1, full.start_steps * steps // full.steps)
    return name, settings


def command_of(settings: dict[str, Any], out: Path) -> str:
    """Return the `openworld train` command that does the same."""
    flags = [as_flag(name, value) for name, value in settings.items() if name != "data"]
    return " ".join(["openworld train", settings["data"], *flags, "--out", shlex.quote(str(out)), "--resume"])
