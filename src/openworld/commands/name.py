"""The command `openworld name`: name and merge novel classes."""

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from openworld.commands.common import add_command, print_table
from openworld.core.errors import UserError

if TYPE_CHECKING:
    from openworld.runs.classes import Classes


def add(commands) -> None:
    summary = "Name or merge the novel classes that a run has found. Without CLASS=NAME and --merge, list all classes."
    parser = add_command(commands, "name", run, summary)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="CLASS=NAME",
        help="new name of a novel class, such as novel-3='delivery van'; the name of a seen class merges it into that "
        "class; novel-3=novel-3 undoes both",
    )
    parser.add_argument("--merge", nargs="+", default=[], metavar="CLASS", help="novel classes to merge into one")


def run(parsed: argparse.Namespace) -> int:
    from openworld.runs.classes import NAMES, Classes
    from openworld.runs.folder import RunFolder
    from openworld.runs.outputs import class_sizes, read_outputs, write_predictions

    folder = RunFolder.open(parsed.run)
    before = Classes.of(folder)
    classes = changed(before, parsed.names, parsed.merge)
    outputs, temperature = read_outputs(folder), folder.config().answers.temperature
    if classes != before:
        if outputs:  # before the names: if writing fails, the same command can be repeated
            write_predictions(folder, outputs, classes, temperature)
        folder.write_json(NAMES, classes.given)
    if not parsed.json:
        print_merges(parsed.run, before, classes)
    sizes = class_sizes(outputs["unlabelled"], classes, temperature) if outputs else {}
    print_classes(classes, sizes, parsed.json)
    if classes != before and not parsed.json and (folder.path / "report.html").exists():
        print(f"report.html still has the old names; to update it: openworld report {shlex.quote(str(parsed.run))}")
    return 0


def changed(classes: "Classes", names: list[str], merge: list[str]) -> "Classes":
    """Return the classes with the requested names, and then with the requested classes merged."""
    for assignment in names:
        old_name, equals, name = assignment.partition("=")
        if not equals:
            raise UserError(f"{assignment}: write CLASS=NAME, such as novel-3='delivery van'")
        classes = classes.renamed(old_name.strip(), name)
    return classes.merged(merge) if merge else classes


def print_merges(run: Path, before: "Classes", after: "Classes") -> None:
    """Print which classes became one, and how to undo it, in case that was a mistake."""
    names_before = dict(zip(before.outputs, before.name_of_each_output, strict=True))
    for name, outputs in after.outputs_by_name.items():
        moved = [output for output in outputs if names_before[output] != name]
        if len(outputs) > 1 and moved:
            undo = shlex.join(["openworld", "name", str(run), *(f"{output}={output}" for output in moved)])
            print(f"{' and '.join(outputs)} are now one class, {name}; to undo: {undo}")


def print_classes(classes: "Classes", sizes: dict[str, int], as_json: bool) -> None:
    outputs = classes.outputs_by_name
    if as_json:
        print(json.dumps({name: {"outputs": outputs[name], "unlabelled": sizes.get(name)} for name in outputs}))
        return
    rows = [
        (name, f"{sizes[name]:,}" if name in sizes else "-", " + ".join(made_of) if made_of != [name] else "")
        for name, made_of in outputs.items()
    ]
    print_table("classes", ("class", "unlabelled samples", "made of"), rows, texts=("made of",))
