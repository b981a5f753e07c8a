"""openworld name"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from openworld.commands.common import add_command, print_table
from openworld.core.errors import UserError

if TYPE_CHECKING:
    from openworld.runs.classes import Classes


def add(commands) -> None:
    summary = "Name the classes that a run has found, or put some together; without a change, list them."
    parser = add_command(commands, "name", run, summary)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="CLASS=NAME",
        help="novel-3='delivery van'; the name of a known class makes it part of that; novel-3=novel-3 takes it back",
    )
    parser.add_argument("--merge", nargs="+", default=[], metavar="CLASS", help="found classes that are one")


def run(parsed: argparse.Namespace) -> int:
    from openworld.runs.classes import NAMES, Classes
    from openworld.runs.folder import RunFolder
    from openworld.runs.outputs import class_sizes, read_outputs, write_predictions

    folder = RunFolder.open(parsed.run)
    before = Classes.of(folder)
    classes = changed(before, parsed.names, parsed.merge)
    outputs, temperature = read_outputs(folder), folder.config().answers.temperature
    if classes != before:
        if outputs:  # before the names: should it fail, the same command does it all again
            write_predictions(folder, outputs, classes, temperature)
        folder.write_json(NAMES, classes.given)
    if not parsed.json:
        tell_what_was_put_together(before, classes)
    tell(classes, class_sizes(outputs["unlabelled"], classes, temperature) if outputs else {}, parsed.json)
    if classes != before and not parsed.json and (folder.path / "report.html").exists():
        print(f"the report still has the old names: openworld report {parsed.run} makes it anew")
    return 0


def changed(classes: "Classes", names: list[str], merge: list[str]) -> "Classes":
    """With the names that were asked for, and then with those classes put together that were asked for."""
    for assignment in names:
        found, equals, name = assignment.partition("=")
        if not equals:
            raise UserError(f"{assignment}: give it as CLASS=NAME, such as novel-3='delivery van'")
        classes = classes.renamed(found.strip(), name)
    return classes.merged(merge) if merge else classes


def tell_what_was_put_together(before: "Classes", after: "Classes") -> None:
    """One name for several may be what was wanted, or may not."""
    names_before = dict(zip(before.outputs, before.name_of_each_output, strict=True))
    for name, outputs in after.outputs_by_name.items():
        moved = [output for output in outputs if names_before[output] != name]
        if len(outputs) > 1 and moved:
            print(f"{' and '.join(outputs)} are one class now, {name}; {moved[-1]}={moved[-1]} takes that back")


def tell(classes: "Classes", sizes: dict[str, int], as_json: bool) -> None:
    outputs = classes.outputs_by_name
    if as_json:
        print(json.dumps({name: {"outputs": outputs[name], "unlabelled": sizes.get(name)} for name in outputs}))
        return
    rows = [
        (name, f"{sizes[name]:,}" if name in sizes else "-", " + ".join(made_of) if made_of != [name] else "")
        for name, made_of in outputs.items()
    ]
    print_table("classes", ("class", "unlabelled samples", "found as"), rows, texts=("found as",))
