"""One self-contained HTML page of a run, or of several beside each other."""

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
    """The page of one run, by default in its folder; or a comparison of several, by default right here."""
    out = out or (runs[0].path / PAGE if len(runs) == 1 else Path(COMPARISON))
    refuse_to_replace(out)
    text = comparison_page(runs, out, PAGE) if len(runs) > 1 else report_page(collect(runs[0], runtime, warn))
    write_whole(out, text)
    return out


def refuse_to_replace(out: Path) -> None:
    """Only a page of ours may be replaced."""
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file for the page")
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}")
    if out.exists():
        with out.open("rb") as file:
            if GENERATOR.encode() not in file.read(1000):
                raise UserError(f"{out} exists and is not a page of openworld: choose another --out")
