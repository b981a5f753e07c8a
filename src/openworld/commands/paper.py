"""openworld paper"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from openworld.commands.common import add_command, print_table
from openworld.paper import ITEMS, table_of


def add(commands) -> None:
    summary = "A table or figure of the paper beside our recorded numbers."
    parser = add_command(commands, "paper", run, summary)
    parser.add_argument("item", nargs="?", metavar="ITEM", help=f"one of {', '.join(ITEMS)} (default: list them)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/paper"), metavar="DIR", help="where figures go [runs/paper]"
    )


def run(parsed: argparse.Namespace) -> int:
    if parsed.item is None and parsed.json:
        print(json.dumps(list(ITEMS)))
        return 0
    if parsed.item is None:
        print("\n".join(f"{name:15}{make.__doc__}" for name, make in ITEMS.items()))
        return 0
    table = table_of(parsed.item)
    if parsed.json:
        print(json.dumps(asdict(table)))
        return 0
    print_table(table.title, table.header, table.rows)
    print("\n".join(table.notes))
    if table.lines:
        from openworld.plots import draw_lines

        parsed.out.mkdir(parents=True, exist_ok=True)
        path = parsed.out / f"{parsed.item}.png"
        draw_lines({name: points for name, points in table.lines.items() if points}, (table.title, *table.axes), path)
        print(f"drawn: {path}")
    return 0
