"""The command `openworld export`: write a model for other programs."""

import argparse
import json
from pathlib import Path

from openworld.commands.common import add_command, print_warning


def add(commands) -> None:
    summary = "Write a run's model for other programs: ONNX (compared with the original), safetensors, or a model card."
    parser = add_command(commands, "export", run, summary)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="files to write, such as model.onnx, model.safetensors (writes model.json beside it), or README.md, a "
        "model card; files that this command wrote before are replaced",
    )


def run(parsed: argparse.Namespace) -> int:
    from openworld.results.export import BATCH_SIZES, export
    from openworld.runs.folder import RunFolder

    folder = RunFolder.open(parsed.run)
    files = export(folder, parsed.files, print_warning)
    if parsed.json:
        print(json.dumps({"run": str(folder.path), "files": [file.facts() for file in files]}))
        return 0
    for file in files:
        differences = " and ".join(f"{value:.0e} in its {output}" for output, value in file.differences.items())
        sizes = ", ".join(map(str, BATCH_SIZES))
        checked = f"; it differs from the original by at most {differences} (batches of {sizes})" if differences else ""
        print(f"{file.path}: {len(file.content) / 1e6:,.2f} MB{checked}")
    return 0
