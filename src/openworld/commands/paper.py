"""The command `openworld paper`: print the paper's tables and figures, or train their rows again."""

import argparse
import json
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path

from openworld.commands.common import add_command, print_folded, print_table, runtime_of
from openworld.commands.sweep import seeds_of
from openworld.core.errors import UserError
from openworld.paper import ESTIMATION, ITEMS, refuse_unknown, summary_of, table_of
from openworld.paper.tables import Table

ALL_ROWS = ""
"""Value of `--run` without a name."""
SCALES = ("full", "small")


def add(commands) -> None:
    summary = "Print a table or figure of the paper beside our recorded numbers. With --run, train it again."
    parser = add_command(commands, "paper", run, summary)
    parser.add_argument("item", nargs="?", metavar="ITEM", help=f"one of {', '.join(ITEMS)} [list them]")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/paper"), metavar="DIR", help="folder for figures and runs [runs/paper]"
    )
    parser.add_argument(
        "--run",
        dest="row",
        nargs="?",
        const=ALL_ROWS,
        metavar="ROW",
        help="train this row, or all rows, again; continue those that were stopped, skip those that are finished",
    )
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="full",
        metavar="SCALE",
        help="full, or small: the same experiment on the digits, in minutes on two cores [full]",
    )
    parser.add_argument("--recipe", metavar="NAME", help="with --run: as in openworld train [auto]")
    parser.add_argument("--seed", type=int, metavar="N", help="with --run: as in openworld train [0]")
    parser.add_argument("--seeds", type=int, metavar="N", help="with --run: train with the seeds 0 to N - 1")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="with --run: as in openworld train")
    parser.add_argument("--steps", type=int, metavar="N", help="with --run: number of training steps [the recipe's]")


def run(parsed: argparse.Namespace) -> int:
    refuse_idle_flags(parsed)
    if parsed.item is None and parsed.json:
        print(json.dumps(list(ITEMS)))
    elif parsed.item is None:
        for name in ITEMS:
            print_folded(f"{name:15}{summary_of(name)}", indent=" " * 15)
    elif parsed.row is None:
        refuse_unknown(parsed.item)
        show(table_of(parsed.item, parsed.scale == "small"), parsed)
    else:
        refuse_unknown(parsed.item)
        train_rows(parsed, parsed.scale == "small")
    return 0


def show(table: Table, parsed: argparse.Namespace) -> None:
    """Print a table, or its JSON, and draw its figure."""
    if parsed.json:
        print(json.dumps(asdict(replace(table, figure=None))))
        return
    print_table(table.title, table.header, table.texts())
    print()
    for note in table.notes:
        print_folded(note)
    if table.figure:
        from openworld.results.plots import draw

        stem = parsed.item if parsed.scale == "full" else f"{parsed.item}-small"
        print(f"figure: {', '.join(map(str, draw(table.figure, table.title, parsed.out / stem)))}")


def refuse_idle_flags(parsed: argparse.Namespace) -> None:
    """Raise a UserError if flags for training are given without --run, or --run without an item."""
    idle = [
        f"--{name.replace('_', '-')}"
        for name in ("recipe", "seed", "seeds", "data_dir", "steps")
        if getattr(parsed, name) is not None
    ]
    if idle and parsed.row is None:
        raise UserError(f"{idle[0]} works only with --run; add --run, or --run ROW, or leave {idle[0]} out")
    if parsed.row is not None and parsed.item is None:
        raise UserError("--run needs the name of an item, for example: openworld paper table1 --run cifar10")


def train_rows(parsed: argparse.Namespace, is_small: bool) -> None:
    """Train one row or all rows, and show the table with the results.

    A stopped run continues, a finished one is not trained again.
    """
    seeds = seeds_of(parsed.seeds, parsed.seed is not None) if parsed.seeds is not None else [parsed.seed or 0]
    if parsed.item == ESTIMATION:
        show(estimate_rows(parsed, is_small, seeds), parsed)
        return

    from openworld.commands.watching import refuse_failures, train_all
    from openworld.paper.accuracy import accuracy_table
    from openworld.paper.items import at_small_scale
    from openworld.paper.recording import result_of
    from openworld.paper.running import command_of, trials_of

    full = ITEMS[parsed.item]
    item = at_small_scale(full) if is_small else full
    if parsed.recipe and (is_small or item.recipe not in ("auto", parsed.recipe)):
        fixed = "the small scale" if is_small else f"{parsed.item}, whose recipe is {item.recipe}"
        raise UserError(f"--recipe does not work with {fixed}; leave it out")
    rows = item.rows if parsed.row == ALL_ROWS else (item.row(parsed.row),)
    trials = trials_of(parsed.item, item, rows, parsed.recipe or "auto", seeds, parsed.steps)
    data_dir = f" --data-dir {shlex.quote(str(parsed.data_dir))}" if parsed.data_dir else ""
    for trial in trials:
        print(f"{command_of(trial, parsed.out)}{data_dir}", file=sys.stderr, flush=True)
    outcomes = train_all(trials, parsed.out, runtime_of(parsed, "auto", quiet=True))
    results = [result_of(outcome.folder) for outcome in outcomes if outcome.summary]
    show(accuracy_table(parsed.item, full, is_small, results, rows), parsed)
    refuse_failures(outcomes)


def estimate_rows(parsed: argparse.Namespace, is_small: bool, seeds: list[int]) -> Table:
    """Estimate the number of classes of one data set, or of all, with every estimator."""
    from openworld.paper.estimation import estimate_again, estimation, names_to_run

    if len(seeds) > 1 or parsed.recipe:
        raise UserError("--seeds and --recipe do not work with estimation, which has one row for each data set")
    names = names_to_run(parsed.row, is_small)
    runtime = runtime_of(parsed, "auto")
    new = {name: estimate_again(name, parsed.out, runtime, seeds[0], parsed.steps) for name in names}
    return estimation(is_small, new)
