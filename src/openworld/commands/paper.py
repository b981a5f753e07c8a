"""The command `openworld paper`: print the paper's tables and figures, or train a row again."""

import argparse
import json
import shlex
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from pathlib import Path

from openworld.commands.common import add_command, print_folded, print_table, runtime_of
from openworld.commands.train import print_summary, train_in
from openworld.core.errors import UserError
from openworld.paper import ITEMS, table_of
from openworld.paper.accuracy import command_of, table_with, training_of
from openworld.paper.tables import Table


def add(commands) -> None:
    summary = "Print a table or figure of the paper beside our recorded numbers. With --run, train a row of it again."
    parser = add_command(commands, "paper", run, summary)
    parser.add_argument("item", nargs="?", metavar="ITEM", help=f"one of {', '.join(ITEMS)} [list them]")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/paper"), metavar="DIR", help="folder for figures and runs [runs/paper]"
    )
    parser.add_argument(
        "--run", dest="row", metavar="ROW", help="train the row of this data set, or continue it if it was stopped"
    )
    parser.add_argument("--recipe", metavar="NAME", help="with --run: as in openworld train [auto]")
    parser.add_argument("--seed", type=int, metavar="N", help="with --run: as in openworld train [0]")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="with --run: as in openworld train")
    parser.add_argument("--steps", type=int, metavar="N", help="with --run: number of training steps [the recipe's]")


def run(parsed: argparse.Namespace) -> int:
    refuse_idle_flags(parsed)
    if parsed.item is None and parsed.json:
        print(json.dumps(list(ITEMS)))
        return 0
    if parsed.item is None:
        for name, make in ITEMS.items():
            print_folded(f"{name:15}{make.__doc__}", indent=" " * 15)
        return 0
    table = train_row(parsed) if parsed.row else table_of(parsed.item)
    if parsed.json:
        print(json.dumps(asdict(table)))
        return 0
    print_table(table.title, table.header, table.texts())
    print()
    for note in table.notes:
        print_folded(note)
    lines = {name: points for name, points in (table.lines or {}).items() if points}
    if lines:
        from openworld.paper.figures import draw_lines

        parsed.out.mkdir(parents=True, exist_ok=True)
        path = parsed.out / f"{parsed.item}.png"
        draw_lines(lines, (table.title, *table.axes), path)
        print(f"figure: {path}")
    return 0


def refuse_idle_flags(parsed: argparse.Namespace) -> None:
    """Raise a UserError if flags for training are given without a row to train, or a row without its table."""
    idle = [
        f"--{name.replace('_', '-')}"
        for name in ("recipe", "seed", "data_dir", "steps")
        if getattr(parsed, name) is not None
    ]
    if idle and parsed.row is None:
        raise UserError(f"{idle[0]} works only with --run; add --run DATA, a row of the table, or leave {idle[0]} out")
    if parsed.row is not None and parsed.item is None:
        raise UserError("--run needs the name of a table, for example: openworld paper table1 --run cifar10")


def train_row(parsed: argparse.Namespace) -> Table:
    """Train the row as `openworld train --resume` does, and return its table with the result.

    A stopped run continues, a finished one is not trained again.
    """
    name, settings = training_of(parsed.item, parsed.row, parsed.recipe or "auto", parsed.seed or 0, parsed.steps)

    from openworld.paper.recording import result_of
    from openworld.planning.request import Request
    from openworld.runs.folder import RunFolder

    folder = RunFolder(parsed.out / name)
    data_dir = f" --data-dir {shlex.quote(str(parsed.data_dir))}" if parsed.data_dir else ""
    print(f"{command_of(settings, folder.path)}{data_dir}", file=sys.stderr, flush=True)
    summary = train_in(folder, Request(settings=settings, resume=True), runtime_of(parsed, "auto"))
    with redirect_stdout(sys.stderr) if parsed.json else nullcontext():
        print_summary(folder, summary)
    return table_with(parsed.item, result_of(folder))
