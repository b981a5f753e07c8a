"""The command `openworld sweep`: train a run for each combination of settings and seeds."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openworld.commands.common import add_command, print_table, runtime_of
from openworld.commands.train import add_training_flags, settings_of
from openworld.core.errors import UserError
from openworld.core.fields import value_text

if TYPE_CHECKING:
    from openworld.planning.sweep import Outcome
    from openworld.results.scores import Group


def add(commands) -> None:
    summary = "Train a run for each combination of settings and seeds, and show all results in one table."
    parser = add_command(commands, "sweep", run, summary)
    parser.epilog = (
        "All other flags are those of `openworld train` and hold for every run. The same command again continues a "
        "sweep that was stopped, and skips the runs that are finished. Runs that start from SimCLR features share them "
        "where they may."
    )
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=VALUE,VALUE",
        help="a setting and its values, for example epsilon=0.05,0.1; give it again for a second setting",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="train each combination with the seeds 0 to N - 1")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the runs [runs/sweep-DATA-NAMES]")
    add_training_flags(parser)


def run(parsed: argparse.Namespace) -> int:
    from openworld.commands.watching import refuse_failures, train_all
    from openworld.planning.sweep import grid, varied_setting

    common = settings_of(parsed)
    varied = dict(map(varied_setting, parsed.vary))
    if len(varied) < len(parsed.vary):
        raise UserError("--vary names the same setting twice; write all its values in one --vary")
    given_twice = next((name for name in varied if name in common), None)
    if given_twice:
        flag = f"--{given_twice.replace('_', '-')}"
        raise UserError(f"{flag} and --vary {given_twice} both set {given_twice}; leave one out")
    if parsed.seeds is not None:
        varied["seed"] = seeds_of(parsed.seeds, "seed" in varied or "seed" in common)
    trials = grid(varied, common)
    data = "data" if "data" in varied else name_of_data(common)
    folder = parsed.out or Path("runs") / "-".join(
        ["sweep", data, *(name for name in varied if name != "data")]
    ).replace("_", "-")

    outcomes = train_all(trials, folder, runtime_of(parsed, quiet=True), parsed.quiet, parsed.minutes)
    show(outcomes, tuple(varied), folder, parsed.json)
    refuse_failures(outcomes)
    return 0


def seeds_of(number: int, is_given: bool) -> list[int]:
    """Return the seeds 0, 1, ..."""
    if is_given:
        raise UserError("--seeds and another setting both choose the seeds; leave one out")
    if number < 1:
        raise UserError(f"--seeds is {number}; it must be 1 or more")
    return list(range(number))


def name_of_data(settings: dict[str, Any]) -> str:
    from openworld.planning.settings import recipe_config

    return Path(recipe_config(settings).data).stem


def show(outcomes: "list[Outcome]", varied: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Write the tables and the plot, and print the table."""
    from openworld.results.plots import draw
    from openworld.results.scores import PARTS, grouped, write_table

    values = [{name: outcome.trial.settings[name] for name in varied} for outcome in outcomes]
    finished = [
        (chosen, {**each.summary, "total_seconds": each.folder.total_seconds()})
        for chosen, each in zip(values, outcomes, strict=True)
        if each.summary
    ]
    measured = (*PARTS, "nmi", "ari", "total_seconds")
    rows = [(*chosen.values(), *(summary[name] for name in measured)) for chosen, summary in finished]
    write_table(folder / "runs.csv", (*varied, *measured), rows)
    groups = grouped(finished)
    names = tuple(name for name in varied if name != "seed")
    texts = [
        (
            *(value_text(group.settings[name]) for name in names),
            *(str(group.score(part) or "-") for part in PARTS),
            ", ".join(map(str, group.seeds)),
            f"{group.minutes:.1f}",
        )
        for group in groups
    ]
    header = (*names, "Seen", "Novel", "All", "seeds", "min")
    write_table(folder / "table.csv", *numbers_of(groups, names))
    if as_json:
        print(json.dumps([as_record(group) for group in groups]))
    elif groups:
        has_names = names or ("",)
        print_table(f"accuracy in %, mean ± standard deviation: {folder}", header, texts, has_names[1:])
    figure = figure_of(groups, names)
    paths = draw(figure, f"{folder.name}: accuracy", folder / "plot") if figure else []
    if groups and not as_json:
        print(f"files: {', '.join(map(str, [folder / 'table.csv', folder / 'runs.csv', *paths]))}")


def numbers_of(groups: "list[Group]", names: tuple[str, ...]) -> tuple[tuple[str, ...], list[tuple]]:
    """Return the header and the rows of table.csv: mean and standard deviation in columns of their own."""
    from openworld.results.scores import PARTS

    header = (*names, *(column for part in PARTS for column in (part, f"{part}_std")), "runs", "minutes")
    rows = []
    for group in groups:
        scores = [group.score(part) for part in PARTS]
        numbers = [number for score in scores for number in ((score.mean, score.std) if score else (None, None))]
        rows.append((*(group.settings[name] for name in names), *numbers, len(group.summaries), group.minutes))
    return header, rows


def as_record(group: "Group") -> dict[str, Any]:
    """Return a group as JSON holds it."""
    from openworld.results.scores import PARTS

    scores = {part: asdict(score) if (score := group.score(part)) else None for part in PARTS}
    return {**group.settings, **scores, "seeds": group.seeds, "minutes": group.minutes}


def figure_of(groups: "list[Group]", names: tuple[str, ...]):
    """Return the plot: lines over a single setting with numbers, else bars. None if no true class is known."""
    from openworld.results.plots import Bars, Lines
    from openworld.results.scores import PARTS

    known = [group for group in groups if group.score("all")]
    if not known:
        return None
    is_number = len(names) == 1 and all(type(group.settings[names[0]]) in (int, float) for group in known)
    if is_number and len(known) > 2:
        lines = {
            part.capitalize(): [(group.settings[names[0]], score) for group in known if (score := group.score(part))]
            for part in PARTS
        }
        return Lines({name: points for name, points in lines.items() if points}, names[0], "accuracy (%)")
    rows = {
        ", ".join(f"{name} {value_text(group.settings[name])}" for name in names) or "all seeds": {
            part.capitalize(): score for part in PARTS if (score := group.score(part))
        }
        for group in known
    }
    return Bars(rows, "accuracy (%)")
