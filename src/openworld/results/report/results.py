"""What came out of a run, in numbers: headline, curves, class shares, class count; and how to do it again."""

import math
import shlex
from typing import Any

import numpy as np

from openworld.core.config import FEATURES_RUN, Training
from openworld.core.fields import flatten, options
from openworld.core.progress import duration
from openworld.data.opening import IN_MEMORY
from openworld.ops.metrics import PROTOCOLS, score_text
from openworld.results.report.charts import Line, line_chart, share_bars
from openworld.results.report.collect import Facts
from openworld.results.report.markup import Html, join, table, tag

CURVES = {
    "loss": "Loss",
    "marginal_error": "Marginal error (assigned class shares, off the prior)",
    "hard_share": "Share of pseudo-labels that were hardened",
    "temperature": "Mean temperature of unlabelled images",
    "lr": "Learning rate",
}
SCORES = {"seen": "var(--seen)", "novel": "var(--novel)", "all": "var(--all)"}


def headline_section(facts: Facts) -> Html:
    scores = facts.scores
    strict = scores["protocols"].get("trssl")
    if strict:
        told = f"Per cent right of the {scores['part']} images, by the protocol trssl."
        result = join(_big_numbers(strict), tag("p", told, class_="lead"), _protocols(scores))
    else:
        result = _found(facts)
    notes = [tag("p", note, class_="warning") for note in facts.notes]
    return join(*notes, tag("div", tag("div", result), _key_facts(facts), class_="beside even"))


def _big_numbers(accuracy: dict[str, float | None]) -> Html:
    meanings = {"seen": "classes with labels", "novel": "classes nobody labelled", "all": "all together"}
    tiles = [
        tag(
            "div",
            tag("span", name.capitalize()),
            tag("b", score_text(accuracy[name])),
            tag("small", meaning),
            class_=f"tile {name}",
        )
        for name, meaning in meanings.items()
    ]
    return tag("div", *tiles, class_="tiles")


def _protocols(scores: dict[str, Any]) -> Html:
    rows = [
        (tag("span", protocol, class_="mono"), *map(score_text, accuracy.values()), PROTOCOLS.get(protocol, ""))
        for protocol, accuracy in scores["protocols"].items()
    ]
    agreement = f"NMI {scores['nmi']:.3f}, ARI {scores['ari']:.3f}: agreement with the true classes, at best 1."
    return join(
        table(("protocol", "Seen", "Novel", "All", "what it counts"), rows, "numbers told"),
        tag("p", agreement, class_="small"),
    )


def _found(facts: Facts) -> Html:
    """Where nobody knows the truth: how many images each class got."""
    if not facts.parts:
        return tag("p", "There is nothing to tell yet of what was found.", class_="lead")
    sizes = np.bincount(facts.parts["unlabelled"].predicted, minlength=len(facts.names))
    rows = [
        (
            name,
            "new" if number >= facts.num_seen else "known",
            f"{sizes[number]:,}",
            f"{100 * sizes[number] / sizes.sum():.1f} %",
        )
        for number, name in enumerate(facts.names)
    ]
    new = int(sizes[facts.num_seen :].sum())
    told = (
        f"{new:,} of {sizes.sum():,} unlabelled images were put into new classes. "
        "Their true classes are not known, so there is no accuracy."
    )
    listing = tag("div", table(("class", "", "images", "share"), rows, "numbers"), class_="tall")
    return join(tag("p", told, class_="lead"), listing)


def _key_facts(facts: Facts) -> Html:
    config, summary = facts.config, facts.summary
    num_new = len(facts.names) - facts.num_seen
    origin = "estimated" if summary.get("num_classes_estimated") else "not estimated"
    images = [
        f"{facts.num_labelled:,} labelled",
        *(f"{len(said.samples):,} {part}" for part, said in facts.parts.items()),
    ]
    left = "" if facts.step == config.training.steps else f" of {config.training.steps:,}, not finished"
    lines = {
        "data": config.data,
        "images": ", ".join(images),
        "classes": f"{len(facts.names)}: {facts.num_seen} known, {num_new} new ({origin})",
        "merged by hand": _merged(facts),
        "method": f"{config.method}, network {config.training.network}",
        "began with": _start(config.training),
        "turned off": ", ".join(summary.get("switches", [])),
        "steps": f"{facts.step:,}{left} ({duration(facts.seconds)})",
        "relayed at step": ", ".join(f"{step:,}" for step in summary.get("relayed", [])),
        "device": summary.get("device") or (facts.sessions[-1].get("device") if facts.sessions else None),
        "seed": config.seed,
        "broken images left out": summary.get("dropped_images") or None,
        "what the features are worth": _probes(summary.get("probes")),
    }
    entries = [join(tag("dt", name), tag("dd", value)) for name, value in lines.items() if value not in (None, "")]
    return tag("dl", *entries, class_="facts")


def _merged(facts: Facts) -> str | None:
    count = len(facts.classes.outputs) - len(facts.names)
    return f"{count} fewer than were trained; the accuracies are of the classes as trained" if count else None


def _start(training: Training) -> str | None:
    """What is not in the run's own steps."""
    if training.start == FEATURES_RUN:
        steps = f", {training.start_steps:,} steps" if training.start_steps else ""
        return f"features learnt first, without labels{steps}"
    return training.start


def _probes(probes: dict[str, float] | None) -> str | None:
    return probes and ", ".join(f"{name} {value:.1f} %" for name, value in probes.items())


# Curves ----------------------------------------------------------------------------------------------------------


def curves_section(facts: Facts) -> Html | None:
    lines = facts.metrics
    accuracy = [
        Line(name if model == "average" else f"{name}, student", points(lines, model, name), colour, model == "student")
        for model in ("average", "student")
        for name, colour in SCORES.items()
    ]
    charts = [line_chart("Accuracy (per cent) of the averaged model and of the student", accuracy, "step")]
    charts += [
        line_chart(title, [Line(title, points(lines, key), "var(--accent)")], "step") for key, title in CURVES.items()
    ]
    charts = [chart for chart in charts if chart]
    return tag("div", *charts, class_="charts") if charts else None


def points(metrics: list[dict[str, Any]], key: str, inner: str | None = None) -> list[tuple[float, float]]:
    """(step, value) of the lines that have it."""
    values = [(line["step"], line.get(key)) for line in metrics]
    if inner:
        values = [(step, (value or {}).get(inner)) for step, value in values]
    return [(step, value) for step, value in values if value is not None]


def shares_section(facts: Facts) -> Html:
    predicted = np.bincount(facts.parts["unlabelled"].predicted, minlength=len(facts.names))
    told = (
        "The share of each class among the unlabelled images: as assumed before training "
        f"(prior {facts.config.problem.prior}), and as predicted. "
        "Training pulls the second towards the first; a class that stays far below was hard to find."
    )
    keys = tag(
        "p",
        tag("span", tag("i", class_="block assumed"), "assumed"),
        tag("span", tag("i", class_="block predicted"), "predicted"),
        class_="legend",
    )
    bars = share_bars(facts.names, facts.prior.tolist(), (predicted / max(predicted.sum(), 1)).tolist())
    return join(tag("p", told, class_="lead"), keys, tag("div", bars, class_="tall"))


def estimate_section(estimate: dict[str, Any]) -> Html:
    low, high, count = estimate["low"], estimate["high"], estimate["num_classes"]
    spread = f"{low} to {high}" if high is not None else f"at least {low}; nobody can tell how many at most"
    told = f"The estimator {estimate['estimator']} counts {count} classes in all, known and new; likely {spread}."
    curve = [
        Line(name, [(score["k"], score[key]) for score in estimate["curve"]], colour, is_dashed)
        for key, name, colour, is_dashed in (
            ("reassigned", "with reassignment", "var(--novel)", False),
            ("accuracy", "without", "var(--muted)", True),
        )
    ]
    title = "Labelled images matched by k-means (per cent)"
    chart = line_chart(title, curve, "number of classes k", (low, high or math.inf), count)
    return join(tag("p", told, class_="lead"), tag("div", chart, class_="charts") if chart else None)


# How it was made -------------------------------------------------------------------------------------------------


def settings_section(facts: Facts) -> Html:
    values = flatten(facts.config)
    rows = [
        (tag("span", option.name, class_="mono"), tag("span", values[option.key], class_="mono"), option.help)
        for option in options(*facts.config.methods)
        if values[option.key] is not None
    ]
    latest = facts.sessions[-1] if facts.sessions else {}
    surroundings = [
        (name.replace("_", " "), tag("span", value, class_="mono"))
        for name, value in latest.items()
        if name != "command"
    ]
    if len(facts.sessions) > 1:
        surroundings.append(("resumed", f"{len(facts.sessions) - 1} times"))
    parts = [_reproduce(facts)]
    parts.append(
        tag(
            "details",
            tag("summary", tag("h3", "Configuration")),
            table(("setting", "value", "what it is"), rows, "told settings"),
            class_="card",
        )
    )
    if surroundings:
        parts.append(
            tag("details", tag("summary", tag("h3", "Environment")), table(("", ""), surroundings), class_="card")
        )
    return join(*parts)


def _reproduce(facts: Facts) -> Html:
    if facts.config.data.startswith(IN_MEMORY):
        return tag(
            "p", "The data came from memory: only the program that made it can train this run again.", class_="lead"
        )
    settings = shlex.join(["openworld", "train", "--config", str(facts.run.path.absolute() / "config.toml")])
    first = facts.sessions[0].get("command", []) if facts.sessions else []
    given = shlex.join(map(str, first)) if first[:1] == ["openworld"] else None
    return join(
        tag("p", "The same settings again, in a new folder:", class_="lead"),
        _command(settings),
        join(tag("p", "As it was started:", class_="lead"), _command(given)) if given else None,
    )


def _command(text: str) -> Html:
    return tag(
        "div",
        tag("pre", tag("code", text), tabindex=0),
        tag("button", "copy", type="button", class_="copy"),
        class_="command",
    )
