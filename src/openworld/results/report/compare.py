"""The page that compares several runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from openworld.core.errors import UserError
from openworld.core.fields import flatten
from openworld.core.progress import duration
from openworld.ops.metrics import score_text
from openworld.results.report.charts import Line, class_colour, line_chart
from openworld.results.report.markup import Html, join, table, tag
from openworld.results.report.page import shell
from openworld.results.report.results import CURVES, points
from openworld.runs.folder import RunFolder

SCORES = ("seen", "novel", "all")


def comparison_page(runs: Sequence[RunFolder], out: Path, page: str) -> str:
    """Return the HTML of a comparison. `page` is the file name of a report in a run folder, for links to reports."""
    names = _names(runs)
    settings = [flatten(run.config()) for run in runs]
    results = [_result(run) for run in runs]
    return shell(
        f"Comparison of {len(runs)} runs",
        " · ".join(dict.fromkeys(str(values["data"]) for values in settings)),
        {
            "Results": join(*_cautions(settings, results), _results(runs, names, results, out, page)),
            "Settings that differ": _differences(names, settings),
            "Curves": _curves(names, [run.metrics() for run in runs]),
        },
        {},
    )


def _names(runs: Sequence[RunFolder]) -> list[str]:
    """Return the folder names of the runs, with as many parent folders as are needed to make them different."""
    paths = [run.path.resolve() for run in runs]
    if len(set(paths)) < len(paths):
        repeated = next(path for path in paths if paths.count(path) > 1)
        raise UserError(f"{repeated} is given twice; give each run once")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def _result(run: RunFolder) -> dict[str, Any]:
    """Return the summary of a run, or the last line of its metrics in the same form if it is not finished."""
    summary = run.summary()
    if summary:
        return {**summary, "is_finished": True}
    last = (run.metrics() or [{}])[-1]
    return {
        **(last.get("average") or {}),
        "steps": last.get("step", 0),
        "seconds": run.seconds(),
        "is_finished": False,
    }


def _cautions(settings: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[Html]:
    """Return warnings about runs that cannot be compared directly."""
    cautions = []
    if len({values["data"] for values in settings}) > 1:
        cautions.append("These runs used different data. Do not compare their accuracies with each other.")
    parts = {result.get("part") for result in results if result["is_finished"]}
    if len(parts) > 1:
        cautions.append("The runs were not all evaluated on the same part of the data (column “part”).")
    if any(not result["is_finished"] for result in results):
        cautions.append("Some runs are not finished. Their numbers are from the last epoch so far.")
    return [tag("p", caution, class_="warning") for caution in cautions]


def _results(runs: Sequence[RunFolder], names: list[str], results: list[dict[str, Any]], out: Path, page: str) -> Html:
    header = ("run", "part", "Seen", "Novel", "All", "NMI", "ARI", "classes", "steps", "time", "seed", "report")
    rows = []
    for number, (run, name, result) in enumerate(zip(runs, names, results, strict=True)):
        report = run.path / page
        link = os.path.relpath(report.absolute(), out.absolute().parent).replace(os.sep, "/")
        agreement = ("-" if result.get(key) is None else f"{result[key]:.3f}" for key in ("nmi", "ari"))
        rows.append(
            (
                join(tag("i", class_="swatch", style=f"background:{class_colour(number)}"), name),
                result.get("part") or "-",
                *(score_text(result.get(key)) for key in SCORES),
                *agreement,
                result.get("num_classes", "-"),
                f"{result['steps']:,}{'' if result['is_finished'] else ' so far'}",
                duration(result["seconds"]),
                run.config().seed,
                tag("a", "open", href=quote(link)) if report.is_file() else "-",
            )
        )
    lead = (
        "Accuracy in % under the protocol trssl. Seen classes had labelled images in training, novel classes had none. "
        "An image of a novel class counts as wrong if it is predicted as a seen class."
    )
    return join(tag("p", lead, class_="lead"), table(header, rows, "numbers"))


def _differences(names: list[str], settings: list[dict[str, Any]]) -> Html:
    """Return a table of the settings that differ. Options of two methods are compared if they have the same name."""
    settings = [{key.rpartition(".")[-1]: value for key, value in values.items()} for values in settings]
    keys = dict.fromkeys(key for values in settings for key in values)
    differing = [key for key in keys if len({repr(values.get(key)) for values in settings}) > 1]
    if not differing:
        return tag("p", "All settings are the same.", class_="lead")
    rows = [
        (name, *("-" if values.get(key) is None else str(values[key]) for key in differing))
        for name, values in zip(names, settings, strict=True)
    ]
    return table(("run", *differing), rows)


def _curves(names: list[str], metrics: list[list[dict[str, Any]]]) -> Html | None:
    def overlaid(title: str, key: str, inner: str | None = None) -> Html | None:
        lines = [
            Line(name, points(lines, key, inner), class_colour(number))
            for number, (name, lines) in enumerate(zip(names, metrics, strict=True))
        ]
        return line_chart(title, lines, "step")

    charts = [
        overlaid(f"{score.capitalize()} accuracy of the averaged model (%)", "average", score) for score in SCORES
    ]
    charts += [overlaid(title, key) for key, title in CURVES.items()]
    charts = [chart for chart in charts if chart]
    return tag("div", *charts, class_="charts") if charts else None
