"""What is looked into: the confusion matrix with its examples, and the map of the features."""

from typing import Any

import numpy as np

from openworld.results.report.charts import class_colour, heat_map, scatter
from openworld.results.report.collect import Facts
from openworld.results.report.confusion import Confusion
from openworld.results.report.galleries import caption
from openworld.results.report.markup import Html, join, tag
from openworld.results.report.pictures import Sample, chosen_evenly, features_of, flattened

EXAMPLES_OF_A_CELL, MOST_EXAMPLES = 6, 480


def choose_examples(facts: Facts, confusion: Confusion) -> list[Sample]:
    """Of the cells with most mistakes, the images that the network was surest of."""
    part = facts.scores["part"]
    said = facts.parts[part]
    mistakes = confusion.counts.copy()
    for column, row in confusion.matches.items():
        mistakes[row, column] = 0
    chosen: list[Sample] = []
    for cell in np.argsort(-mistakes, axis=None, kind="stable")[: np.count_nonzero(mistakes)]:
        row, column = np.unravel_index(cell, mistakes.shape)
        inside = np.flatnonzero((said.truth == row) & (said.predicted == column))
        surest = inside[np.argsort(-said.confidence[inside], kind="stable")][:EXAMPLES_OF_A_CELL]
        chosen += [(part, int(position)) for position in surest]
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
    told = (
        f"Rows are true classes, columns predicted ones, of the {facts.scores['part']} images. "
        "Discovered classes stand under the true class that they match, so that what is right lies on the framed "
        "diagonal. The stronger its colour, the larger a cell's share of its row. "
        "Choose a class or a cell to look into it."
    )
    panel = tag(
        "div",
        tag("label", "Look into ", choice),
        tag("div", tag("p", "Nothing is chosen yet.", class_="empty"), id="zoom", aria_live="polite"),
        class_="zoom",
    )
    matrix = tag("div", heat_map(confusion, facts.true_names, facts.names), class_="scroll")
    return join(tag("p", told, class_="lead"), tag("div", matrix, panel, class_="beside"))


def confusion_data(
    facts: Facts, confusion: Confusion, examples: list[Sample], first_cell: int | None
) -> dict[str, Any]:
    """For the script; the pictures of the examples are those of the atlas from the first cell on."""
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
    """Some samples, and where they lie; none without the data."""
    if facts.world is None or facts.model is None or not facts.parts:
        return [], None
    samples = chosen_evenly({part: len(said.samples) for part, said in facts.parts.items()})
    places = flattened(features_of(facts.world, facts.model, samples), facts.config.seed)
    return (samples, places) if places is not None else ([], None)


def true_colours(facts: Facts) -> list[str]:
    """A true class has the colour of the predicted class that matches it; one without a match has its own."""
    confusion = facts.confusion(facts.scores["part"])
    of_match = {row: column for column, row in confusion.matches.items()} if confusion else {}
    spare = len(facts.names)
    return [class_colour(of_match.get(number, spare + number)) for number in range(len(facts.true_names))]


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
    told = (
        f"{len(samples):,} images, chosen evenly from the {' and '.join(facts.parts)} part"
        f"{'s' if len(facts.parts) > 1 else ''}. Those that the network finds alike lie together "
        "(t-SNE of its features; distances between groups mean little). "
        "What is predicted to be of a known class is round, of a new one square. "
        "Point at an image, or move with the arrow keys."
    )
    legends = [
        _legend("predicted", facts.names, [class_colour(number) for number in range(len(facts.names))], facts.num_seen),
        _legend("truth", facts.true_names, true_colours(facts), facts.num_seen) if has_truth else None,
    ]
    return join(
        tag("p", told, class_="lead"),
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
    """For the script; the n-th point's picture is cell n of the atlas."""
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
