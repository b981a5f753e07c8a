"""A gallery for every class: its most typical and its most doubtful images."""

import shlex
from dataclasses import dataclass

import numpy as np

from openworld.results.report.charts import class_colour
from openworld.results.report.collect import Facts
from openworld.results.report.confusion import Confusion
from openworld.results.report.markup import Html, join, tag
from openworld.results.report.pictures import FEW_PIXELS, Sample, data_uri, gallery_side, shrunk, take

MOST_SHOWN, FEWEST_SHOWN, SHOWN_IN_ALL = 12, 6, 360
"""Typical images of one class at most and at least, and of all classes together. Up to half as many doubtful images
are added to each class."""
MOST_OPEN = 20
"""Largest number of classes whose galleries are open at first."""


@dataclass(frozen=True)
class Gallery:
    """The chosen images of one class, as positions in the unlabelled part."""

    number: int
    """Number of the class."""
    size: int
    """Number of unlabelled images that are predicted as this class."""
    typical: list[int]
    """Most typical images, the most typical first."""
    doubtful: list[int]
    """Most doubtful images, the most doubtful first."""


def choose_galleries(facts: Facts) -> list[Gallery]:
    """Choose the most typical images of each class, and the most doubtful of the rest."""
    unlabelled = facts.parts["unlabelled"]
    shown = max(FEWEST_SHOWN, min(MOST_SHOWN, SHOWN_IN_ALL // len(facts.names)))
    galleries = []
    for number in range(len(facts.names)):
        members = np.flatnonzero(unlabelled.predicted == number)
        ranked = members[np.argsort(-unlabelled.typicality[members], kind="stable")].tolist()
        typical = ranked[: min(shown, -(-2 * len(ranked) // 3))]
        doubtful = ranked[len(typical) :][::-1][: shown // 2]
        galleries.append(Gallery(number, len(ranked), typical, doubtful))
    return galleries


def thumbnails(facts: Facts, galleries: list[Gallery]) -> dict[int, str]:
    """Return the pictures of all galleries as data URIs, by position; empty if there are no images."""
    positions = [position for gallery in galleries for position in (*gallery.typical, *gallery.doubtful)]
    if not facts.images:
        return {}
    side = gallery_side(len(positions))
    pictures = take(facts.world, [("unlabelled", position) for position in positions])
    return {
        position: data_uri(shrunk(picture, side), min(picture.width, side))
        for position, picture in zip(positions, pictures, strict=True)
    }


def caption(facts: Facts, sample: Sample) -> str:
    """Return the caption of a sample: its name, its prediction and, if known, its true class."""
    part, position = sample
    found = facts.parts[part]
    name, runner_up, truth = found.samples[position], found.runner_up[position], found.truth[position]
    lines = [
        name if isinstance(name, str) else f"{part} image {name}",
        f"predicted: {facts.names[found.predicted[position]]}",
        f"confidence {100 * found.confidence[position]:.0f} %, uncertainty {100 * found.uncertainty[position]:.0f} %",
    ]
    if runner_up >= 0:
        lines.append(f"runner-up: {facts.names[runner_up]}")
    if truth >= 0:
        lines.append(f"true class: {facts.true_names[truth]}")
    return "\n".join(lines)


def gallery_section(facts: Facts, is_new: bool, galleries: list[Gallery], pictures: dict[int, str]) -> Html:
    """Return the galleries of the discovered classes (`is_new`) or of the known classes."""
    part = "unlabelled" if facts.confusion("unlabelled") else facts.scores["part"]
    confusion = facts.confusion(part)
    matched = facts.confusion(facts.scores["part"])
    chosen = [gallery for gallery in galleries if (gallery.number >= facts.num_seen) == is_new]
    is_open = len(chosen) <= MOST_OPEN
    cards = [_card(facts, gallery, pictures, confusion, matched, is_open) for gallery in chosen]
    lead = "Each gallery shows unlabelled images that are predicted as the class, as the network sees them."
    if confusion:
        lead += f" Purity is the proportion of the most frequent true class among the {part} images of the class."
    if facts.images and facts.confusion("unlabelled"):
        lead += " A cross marks an image of another true class."
    if facts.images:
        lead += " Choose an image to enlarge it."
    tools = tag(
        "p",
        tag("input", type="search", placeholder="find a class", aria_label="find a class", class_="find"),
        tag("button", "open all", type="button", class_="open-all"),
        tag("button", "close all", type="button", class_="close-all"),
        class_="tools",
    )
    text = tag("p", lead, how_to_name(facts) if is_new else None, class_="lead")
    return join(text, tools if len(chosen) > 6 else None, *cards)


def how_to_name(facts: Facts) -> Html | None:
    """Return the command that names a class, or None if all classes have names."""
    nameless = next((name for name in facts.names if name.startswith("novel-")), None)
    if nameless is None:
        return None
    words = shlex.join(["openworld", "name", str(facts.run.path), f"{nameless}=NAME"])
    return join(" To name a class: ", tag("code", words))


def _card(
    facts: Facts,
    gallery: Gallery,
    pictures: dict[int, str],
    confusion: Confusion | None,
    matched: Confusion | None,
    is_open: bool,
) -> Html:
    name = facts.names[gallery.number]
    proportion = gallery.size / max(len(facts.parts["unlabelled"].samples), 1)
    chips = [tag("span", f"{gallery.size:,} images", tag("small", f" {100 * proportion:.1f} %"), class_="chip")]
    purity = confusion.purity(gallery.number) if confusion else None
    if purity:
        chips.append(
            tag("span", f"purity {100 * purity[0]:.0f} %", class_="chip", title="proportion of its main true class")
        )
    true_class = matched.matches.get(gallery.number) if matched else None
    if true_class is not None and gallery.number >= facts.num_seen:
        chips.append(tag("span", "matches ", tag("b", facts.true_names[true_class]), class_="chip"))
    if purity and true_class is not None and purity[1] != true_class:
        chips.append(tag("span", "mostly ", tag("b", facts.true_names[purity[1]]), class_="chip doubt"))
    kind = "swatch" if gallery.number < facts.num_seen else "swatch new"
    swatch = tag("i", class_=kind, style=f"background:{class_colour(gallery.number)}")
    rows = [
        _row(facts, heading, positions, pictures, true_class)
        for heading, positions in (("most typical", gallery.typical), ("most doubtful", gallery.doubtful))
        if positions
    ]
    empty = None if rows else tag("p", "No unlabelled image is predicted as this class.", class_="empty")
    head = tag("summary", swatch, tag("h3", name), *chips)
    return tag("details", head, *rows, empty, class_="card", open=is_open, data_name=name.casefold())


def _row(facts: Facts, heading: str, positions: list[int], pictures: dict[int, str], match: int | None) -> Html:
    images = [_thumbnail(facts, position, pictures.get(position), match) for position in positions]
    return tag("div", tag("h4", heading), tag("div", *images, class_="strip"), class_="row")


def _thumbnail(facts: Facts, position: int, picture: str | None, match: int | None) -> Html:
    unlabelled = facts.parts["unlabelled"]
    text = caption(facts, ("unlabelled", position))
    if picture is None:
        return tag("span", unlabelled.samples[position], class_="name", title=text)
    is_wrong = unlabelled.truth[position] >= 0 and unlabelled.truth[position] != match
    shape = facts.world.training.unlabelled.shape
    image = tag("img", src=picture, alt=text, decoding="async", class_="pixels" if shape[-1] <= FEW_PIXELS else None)
    return tag("button", image, type="button", title=text, class_="thumb wrong" if is_wrong else "thumb")
