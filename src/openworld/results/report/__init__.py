"""Write a run as one self-contained HTML page, or several runs as a comparison."""

from collections.abc import Callable, Sequence
from pathlib import Path

from openworld.compute.runtime import Runtime
from openworld.core.errors import UserError
from openworld.core.files import write_whole
from openworld.results.report.collect import collect
from openworld.results.report.compare import comparison_page
from openworld.results.report.page import GENERATOR, report_page
from openworld.runs.folder import RunFolder

PAGE, COMPARISON = "report.html", "comparison.html"


def write_report(runs: Sequence[RunFolder], out: Path | None, runtime: Runtime, warn: Callable[[str], None]) -> Path:
    """Write the report of one run, or a comparison of several runs, and return the path of the page.

    Args:
        runs: one run for a report, several for a comparison.
        out: the page; None for the run folder (a report) or the current folder (a comparison).
        warn: called with each warning.
    """
    out = out or (runs[0].path / PAGE if len(runs) == 1 else Path(COMPARISON))
    refuse_to_replace(out)
    text = comparison_page(runs, out, PAGE) if len(runs) > 1 else report_page(collect(runs[0], runtime, warn))
    write_whole(out, text)
    return out


def refuse_to_replace(out: Path) -> None:
    """Raise a UserError if the page cannot be written, or if `openworld report` did not create the existing file."""
    if out.is_dir():
        raise UserError(f"{out} is a folder; give a file name with --out")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist; create it or choose another --out")
    if out.exists():
        with out.open("rb") as file:
            if GENERATOR.encode() not in file.read(1000):
                raise UserError(f"{out} exists and was not created by openworld report; choose another --out")
