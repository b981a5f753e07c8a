"""The command `openworld report`: write an HTML page of one run or of several."""

import argparse
import json
from pathlib import Path

from openworld.commands.common import add_command, add_data_flags, add_device_flag, print_warning, runtime_of


def add(commands) -> None:
    summary = "Write an HTML page of a run: results, a gallery of every class, a map. For several runs, a comparison."
    parser = add_command(commands, "report", run, summary)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="one run folder, or several to compare")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="self-contained HTML file to write; an earlier report is replaced [RUN/report.html; for several runs "
        "comparison.html]",
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    add_device_flag(parser)
    add_data_flags(parser)


def run(parsed: argparse.Namespace) -> int:
    from openworld.results.report import write_report
    from openworld.runs.folder import RunFolder

    runs = [RunFolder.open(path) for path in parsed.runs]
    file = write_report(runs, parsed.out, runtime_of(parsed), print_warning)
    size = file.stat().st_size
    if parsed.json:
        print(json.dumps({"file": str(file), "runs": [str(run.path) for run in runs], "bytes": size}))
    else:
        size_text = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
        print(f"{file}: {size_text}, open it in a browser")
    return 0
