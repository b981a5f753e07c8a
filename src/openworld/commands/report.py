"""openworld report"""

import argparse
import json
from pathlib import Path

from openworld.commands.common import add_command, add_data_flags, add_device_flag, print_warning, runtime_of


def add(commands) -> None:
    summary = (
        "One self-contained HTML page of a run: results, a gallery of every class, a map; of several, a comparison."
    )
    parser = add_command(commands, "report", run, summary)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder; several are compared")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page; an earlier page is replaced [RUN/report.html, or comparison.html of several]",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
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
        told = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
        print(f"{file}: {told}, open it in a browser")
    return 0
