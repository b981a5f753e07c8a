"""The report as one HTML file: style, script and pictures are inside, and the page loads nothing from elsewhere."""

import base64
import hashlib
from importlib.resources import files
from typing import Any

from openworld import __version__
from openworld.results.report.collect import Facts
from openworld.results.report.explore import (
    choose_examples,
    confusion_data,
    confusion_section,
    map_data,
    map_of,
    map_section,
)
from openworld.results.report.galleries import choose_galleries, gallery_section, thumbnails
from openworld.results.report.markup import Html, join, json_data, tag
from openworld.results.report.pictures import atlas, take
from openworld.results.report.results import (
    curves_section,
    estimate_section,
    headline_section,
    proportions_section,
    settings_section,
)

GENERATOR = '<meta name="generator" content="openworld'
"""Mark of a page that openworld wrote. Only such a file may be replaced."""


def shell(title: str, about: str, sections: dict[str, Html | None], data: dict[str, Any]) -> str:
    """Return the whole page.

    Args:
        title: title of the page.
        about: line under the title.
        sections: contents by heading. A section that is None is left out.
        data: data for the script.
    """
    style, script = (
        files("openworld.results.report").joinpath(name).read_text("utf-8") for name in ("style.css", "script.js")
    )
    # With this policy no other script that gets into the page can run, and the page can load nothing.
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{fingerprint}'"
    shown = {heading: content for heading, content in sections.items() if content}
    anchors = {heading: heading.lower().replace(" ", "-") for heading in shown}
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'{GENERATOR} {__version__}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("title", title),
        tag("style", Html(style)),
    )
    theme = tag("button", "dark", type="button", id="theme", aria_label="switch between light and dark")
    links = tag("nav", *(tag("a", heading, href=f"#{anchors[heading]}") for heading in shown), aria_label="sections")
    header = tag("header", tag("div", tag("h1", title), tag("p", about), class_="titles"), theme)
    main = tag("main", *(tag("section", tag("h2", heading), shown[heading], id=anchors[heading]) for heading in shown))
    footer = tag("footer", f"Created by openworld {__version__}. This file works without a network connection.")
    enlarged = tag("dialog", tag("img", alt=""), tag("pre"), tag("button", "close", type="button"), id="enlarged")
    body = tag("body", header, links, main, footer, enlarged, json_data("data", data), tag("script", Html(script)))
    return f'<!doctype html>\n<html lang="en">{join(head, body)}</html>\n'


def report_page(facts: Facts) -> str:
    """Return the report of one run."""
    sections: dict[str, Html | None] = {"Result": headline_section(facts)}
    data: dict[str, Any] = {}
    confusion = facts.confusion(facts.scores["part"])
    examples = choose_examples(facts, confusion) if confusion else []
    points, places = map_of(facts)
    if facts.parts:
        galleries = choose_galleries(facts)
        pictures = thumbnails(facts, galleries)
        if len(facts.names) > facts.num_seen:
            sections["Discovered classes"] = gallery_section(facts, True, galleries, pictures)
        sections["Known classes"] = gallery_section(facts, False, galleries, pictures)
    if confusion:
        sections["Confusion"] = confusion_section(facts, confusion)
        data["confusion"] = confusion_data(facts, confusion, examples, len(points) if facts.images else None)
    if places is not None:
        sections["Map"] = map_section(facts, points, places)
        data["map"] = map_data(facts, points, places, facts.images)
    if facts.images and (points or examples):
        data["atlas"] = atlas(take(facts.world, [*points, *examples]))
    sections["Curves"] = curves_section(facts)
    sections["Class proportions"] = proportions_section(facts) if facts.parts else None
    sections["Class count"] = estimate_section(facts.estimate) if facts.estimate else None
    sections["How it was made"] = settings_section(facts)
    return shell(facts.run.path.absolute().name, f"Results of openworld on {facts.config.data}", sections, data)
