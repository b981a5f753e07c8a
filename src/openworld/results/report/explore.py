"""The interactive sections of the report: the confusion matrix with examples, and the map of the features."""

from typing import Any

import numpy as np

from openworld.results.report.charts import class_colour, heat_map, scatter
from openworld.results.report.collect import Facts
from openworld.results.report.confusion import Confusion
from openworld.results.report.galleries import caption
from openworld.results.report.markup import Html, join, tag
from openworld.results.report.pictures import Sample, chosen_evenly, features_of, flattened

EXAMPLES_OF_A_CELL, MOST_EXAMPLES = 6, 480
"""Largest number of examples of one cell of the confusion matrix, and a number of examples that ends the choice."""


def choose_examples(facts: Facts, confusion: Confusion) -> list[Sample]:
    """Return the mistakes with the highest confidence, from the cells with the most mistakes."""
    part = facts.scores["part"]
    found = facts.parts[part]
    mistakes = confusion.counts.copy()
    for column, row in confusion.matches.items():
        mistakes[row, column] = 0
    chosen: list[Sample] = []
    for cell in np.argsort(-mistakes, axis=None, kind="stable")[: np.count_nonzero(mistakes)]:
        row, column = np.unravel_index(cell, mistakes.shape)
        inside = np.flatnonzero((found.truth == row) & (found.predicted == column))
        most_confident = inside[np.argsort(-found.confidence[inside], kind="stable")][:EXAMPLES_OF_A_CELL]
        chosen += [(part, int(position)) for position in most_confident]
        if len(chosen) >= MOST_EXAMPLES:
            break
    return chosen


def confusion_section(facts: Facts, confusion: Confusion) -> Html:
    rows = [tag("option", name, value=f"row {number}") for number, name in enumerate(facts.true_names)]
    columns = [tag("option", facts.names[number], value=f"column {number}") for number in confusion.columns]
    choice = tag(
        "select",
        tag("option", "choose a class …", value=""),
        tag("optgroup", *rows, label="true class"),
        tag("optgroup", *columns, label="predicted class"),
        id="choose-class",
    )
    lead = (
        f"Rows are true classes, columns are predicted classes, for the {facts.scores['part']} images. "
        "Discovered classes have the order of the true classes that they match. A frame marks the matches, which are "
        "the correct predictions. A stronger colour means a larger proportion of the row. "
        "Choose a class or a cell to see its numbers and its mistakes."
    )
    panel = tag(
        "div",
        tag("label", "Show details of ", choice),
        tag("div", tag("p", "Nothing is chosen yet.", class_="empty"), id="zoom", aria_live="polite"),
        class_="zoom",
    )
    matrix = tag("div", heat_map(confusion, facts.true_names, facts.names), class_="scroll")
    return join(tag("p", lead, class_="lead"), tag("div", matrix, panel, class_="beside"))


def confusion_data(
    facts: Facts, confusion: Confusion, examples: list[Sample], first_cell: int | None
) -> dict[str, Any]:
    """Return the data of the confusion matrix for the script.

    The pictures of the examples are in the atlas, from `first_cell` on; None if there are no pictures.
    """
    return {
        "counts": confusion.counts.tolist(),
        "rows": facts.true_names,
        "columns": facts.names,
        "matches": confusion.matches,
        "examples": [
            {
                "row": int(facts.parts[part].truth[position]),
                "column": int(facts.parts[part].predicted[position]),
                "cell": None if first_cell is None else first_cell + number,
                "caption": caption(facts, (part, position)),
            }
            for number, (part, position) in enumerate(examples)
        ],
    }


# The map ---------------------------------------------------------------------------------------------------------


def map_of(facts: Facts) -> tuple[list[Sample], np.ndarray | None]:
    """Return the samples of the map and their places, or no samples and None if the data is missing."""
    if facts.world is None or facts.model is None or not facts.parts:
        return [], None
    samples = chosen_evenly({part: len(found.samples) for part, found in facts.parts.items()})
    places = flattened(features_of(facts.world, facts.model, samples), facts.config.seed)
    return (samples, places) if places is not None else ([], None)


def true_colours(facts: Facts) -> list[str]:
    """Return the colours of the true classes: that of the matching predicted class, or a new one without a match."""
    confusion = facts.confusion(facts.scores["part"])
    predicted_of = {row: column for column, row in confusion.matches.items()} if confusion else {}
    first_unused = len(facts.names)
    return [class_colour(predicted_of.get(number, first_unused + number)) for number in range(len(facts.true_names))]


def map_section(facts: Facts, samples: list[Sample], places: np.ndarray) -> Html:
    predicted = [int(facts.parts[part].predicted[position]) for part, position in samples]
    drawing = scatter(places, [class_colour(number) for number in predicted], [n >= facts.num_seen for n in predicted])
    has_truth = any(facts.parts[part].truth[position] >= 0 for part, position in samples)
    choice = tag(
        "p",
        tag("span", "Colour by "),
        tag("button", "prediction", type="button", data_colour="predicted", aria_pressed="true"),
        tag("button", "true class", type="button", data_colour="truth", aria_pressed="false"),
        class_="tools",
    )
    lead = (
        f"{len(samples):,} images, chosen evenly from the {' and '.join(facts.parts)} part"
        f"{'s' if len(facts.parts) > 1 else ''}. Images that are close together are similar to the network "
        "(t-SNE of its features). Distances between groups mean little. "
        "A round point is predicted as a known class, a square point as a discovered class. "
        "To see an image, point at it or use the arrow keys."
    )
    legends = [
        _legend("predicted", facts.names, [class_colour(number) for number in range(len(facts.names))], facts.num_seen),
        _legend("truth", facts.true_names, true_colours(facts), facts.num_seen) if has_truth else None,
    ]
    return join(
        tag("p", lead, class_="lead"),
        choice if has_truth else None,
        tag(
            "div",
            tag("div", drawing, tag("div", id="map-card", role="status", hidden=True), class_="map"),
            *legends,
            class_="beside",
        ),
    )


def _legend(kind: str, names: tuple[str, ...], colours: list[str], num_seen: int) -> Html:
    entries = [
        tag(
            "button",
            tag("i", class_="swatch" if number < num_seen else "swatch new", style=f"background:{colour}"),
            name,
            type="button",
            data_class=number,
            aria_pressed="false",
        )
        for number, (name, colour) in enumerate(zip(names, colours, strict=True))
    ]
    return tag("div", *entries, class_="map-legend", data_kind=kind, hidden=kind != "predicted")


def map_data(facts: Facts, samples: list[Sample], places: np.ndarray, has_pictures: bool) -> dict[str, Any]:
    """Return the data of the map for the script. The picture of point n is cell n of the atlas."""
    return {
        "colours": {
            "predicted": [class_colour(number) for number in range(len(facts.names))],
            "truth": true_colours(facts),
        },
        "points": [
            {
                "x": round(float(x), 4),
                "y": round(float(y), 4),
                "predicted": int(facts.parts[part].predicted[position]),
                "truth": int(facts.parts[part].truth[position]),
                "cell": number if has_pictures else None,
                "caption": caption(facts, (part, position)),
            }
            for number, ((part, position), (x, y)) in enumerate(zip(samples, places, strict=True))
        ],
    }
