"""Run the rows of an item again: the settings of their runs, and the commands that do the same."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openworld.core.recipes import RECIPES, recipe_for
from openworld.paper.items import SMALL_STEPS, Item, Row
from openworld.paper.matching import as_flag, shorter_epochs
from openworld.planning.sweep import Trial


def trials_of(
    name: str, item: Item, rows: Sequence[Row], recipe: str, seeds: Sequence[int], steps: int | None = None
) -> list[Trial]:
    """Return the runs of some rows of an item with some seeds. `item` is at full or at small scale."""
    return [trial_of(name, item, row, recipe, seed, steps) for row in rows for seed in seeds]


def trial_of(name: str, item: Item, row: Row, recipe: str, seed: int, steps: int | None) -> Trial:
    """Return the run of a row. A short trial gets a name of its own, so that it is not taken for the full run."""
    wanted = item.recipe if recipe == "auto" else recipe
    recipe = recipe_for(wanted, row.data, is_benchmark=True, method=None)
    settings: dict[str, Any] = {"data": row.data, "recipe": recipe, **row.settings, "seed": seed}
    folder = f"{name}-{row.name}-{recipe}-seed{seed}"
    if recipe == "paper":
        settings |= row.paper_settings
    if item.is_small:
        settings, folder = {**settings, **SMALL_STEPS}, f"{name}-{row.name}-small-seed{seed}"
    if steps is not None:
        settings, folder = {**settings, "steps": steps}, f"{folder}-{steps}-steps"
        full = RECIPES[recipe](row.data).training
        settings["epoch_steps"] = shorter_epochs(full, steps)
        if full.start_steps:  # the features are shortened by the same factor as the run itself
            settings["start_steps"] = max(1, full.start_steps * steps // full.steps)
    return Trial(folder, settings)


def command_of(trial: Trial, out: Path) -> str:
    """Return the `openworld train` command that does the same."""
    flags = [as_flag(name, value) for name, value in trial.settings.items() if name != "data"]
    folder = shlex.quote(str(out / trial.name))
    return " ".join(["openworld train", trial.settings["data"], *flags, "--out", folder, "--resume"])
