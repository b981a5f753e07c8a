"""The command `openworld suggest`: choose the images to label next."""

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openworld.commands.common import (
    add_command,
    add_data_flags,
    add_device_flag,
    print_table,
    print_warning,
    runtime_of,
)

if TYPE_CHECKING:
    from openworld.results.suggest import Suggestions

LISTED = 10
"""Number of suggestions that are printed; the file and --json have all."""


def add(commands) -> None:
    summary = "Choose the unlabelled images to label next. Writes a manifest to fill in and to train on."
    parser = add_command(commands, "suggest", run, summary)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--count", type=int, metavar="N", help="number of images [50, or all if there are fewer]")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="new .csv file, in the folder of the images or in a folder above [a new to-label.csv beside the images; "
        "in the run folder if the data is not image files]",
    )
    add_device_flag(parser)
    add_data_flags(parser)


def run(parsed: argparse.Namespace) -> int:
    from openworld.data.opening import reopen_dataset
    from openworld.results.suggest import (
        draw_sheet,
        makes_manifest,
        place_for,
        sheet_for,
        suggest,
        write_list,
        write_manifest,
    )
    from openworld.runs.folder import RunFolder

    folder, runtime = RunFolder.open(parsed.run), runtime_of(parsed)
    dataset = reopen_dataset(folder.config().data, runtime.data_dir)
    path = place_for(folder, dataset, parsed.out)
    found = suggest(folder, dataset, parsed.count, runtime, print_warning)
    is_manifest = makes_manifest(folder, dataset)
    if is_manifest:
        write_manifest(path, found, dataset)
    else:
        write_list(path, found)
    sheet = None if dataset.has_features else sheet_for(folder, path)
    if sheet:
        draw_sheet(sheet, found)
    # Without --num-classes, a class that gets its first label would raise the number of novel classes to find
    train = f"openworld train {shlex.quote(str(path))} --num-classes {len(found.classes.names)}"
    files = {"file": str(path), "contact_sheet": sheet and str(sheet), "train": train if is_manifest else None}
    if parsed.json:
        print(json.dumps({**files, "suggestions": [as_json(chosen) for chosen in found.chosen]}))
    else:
        print_suggestions(found, files)
    return 0


def as_json(chosen) -> dict[str, Any]:
    sample = "path" if isinstance(chosen.sample, str) else "index"
    return {
        sample: chosen.sample,
        **{name: getattr(chosen, name) for name in ("guess", "why", "confidence")},
    }


def print_suggestions(found: "Suggestions", files: dict[str, str | None]) -> None:
    rows = [
        (str(chosen.sample), chosen.guess, chosen.why, f"{chosen.confidence:.2f}") for chosen in found.chosen[:LISTED]
    ]
    title = f"images to label next: {len(rows)} of {len(found.chosen)}, the most helpful first"
    print_table(title, ("image", "guess", "why", "confidence"), rows, texts=("guess", "why"))
    print(f"list of all of them: {files['file']}")
    if files["contact_sheet"]:
        print(f"pictures of them: {files['contact_sheet']}")
    if files["train"]:
        print(f"fill in the column label, for as many images as you like, then run: {files['train']}")
    else:
        print("add their labels to your data, then train on it again")
