"""Several runs beside each other."""

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
    """`page` is what the report of a run is called in its folder: those that are there are linked."""
    names = _names(runs)
    settings = [flatten(run.config()) for run in runs]
    results = [_result(run) for run in runs]
    return shell(
        f"Comparison of {len(runs)} runs",
        " · ".join(dict.fromkeys(str(values["data"]) for values in settings)),
        {
            "Results": join(*_cautions(settings, results), _results(runs, names, results, out, page)),
            "What differs": _differences(names, settings),
            "Curves": _curves(names, [run.metrics() for run in runs]),
        },
        {},
    )


def _names(runs: Sequence[RunFolder]) -> list[str]:
    """The folders' names, or as much of their paths as tells them apart."""
    paths = [run.path.resolve() for run in runs]
    if len(set(paths)) < len(paths):
        raise UserError("a run is named twice: name each once")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def _result(run: RunFolder) -> dict[str, Any]:
    """The summary, or of a run that is not finished its last line of metrics in the same form."""
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
    """What stands in the way of comparing."""
    cautions = []
    if len({values["data"] for values in settings}) > 1:
        cautions.append("These runs are of different data: their accuracies are not to be compared with each other.")
    parts = {result.get("part") for result in results if result["is_finished"]}
    if len(parts) > 1:
        cautions.append("The accuracies are not all of the same part of the data (column “part”).")
    if any(not result["is_finished"] for result in results):
        cautions.append("Some runs are not finished: their numbers are those of the last epoch so far.")
    return [tag("p", caution, class_="warning") for caution in cautions]


def _results(runs: Sequence[RunFolder], names: list[str], results: list[dict[str, Any]], out: Path, page: str) -> Html:
    header = ("run", "part", "Seen", "Novel", "All", "NMI", "ARI", "classes", "steps", "time", "seed", "report")
    rows = []
    for number, (run, name, result) in enumerate(zip(runs, names, results, strict=True)):
        there = run.path / page
        link = os.path.relpath(there.absolute(), out.absolute().parent).replace(os.sep, "/")
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
                tag("a", "open", href=quote(link)) if there.is_file() else "-",
            )
        )
    told = "Per cent right, by the protocol trssl: for Novel, an image taken for a known class is wrong."
    return join(tag("p", told, class_="lead"), table(header, rows, "numbers"))


def _differences(names: list[str], settings: list[dict[str, Any]]) -> Html:
    """An option of one method is held against that of another which bears the same name."""
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
        overlaid(f"{score.capitalize()} accuracy, averaged model (per cent)", "average", score) for score in SCORES
    ]
    charts += [overlaid(title, key) for key, title in CURVES.items()]
    charts = [chart for chart in charts if chart]
    return tag("div", *charts, class_="charts") if charts else None
