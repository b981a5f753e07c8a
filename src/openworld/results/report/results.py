"""The sections of the report with numbers: result, curves, class proportions, class count, and how it was made."""

import math
import shlex
from typing import Any

import numpy as np

from openworld.core.config import FEATURES_RUN, Training
from openworld.core.fields import flatten, options
from openworld.core.progress import duration
from openworld.data.opening import IN_MEMORY
from openworld.ops.metrics import PROTOCOLS, score_text
from openworld.results.report.charts import DISTINCT_COLOURS, Line, class_colour, line_chart, proportion_bars
from openworld.results.report.collect import Facts
from openworld.results.report.markup import Html, join, table, tag

CURVES = {
    "loss": "Loss",
    "marginal_error": "Marginal error (class proportions of the pseudo-labels, against the prior)",
    "hard_share": "Proportion of hard pseudo-labels",
    "temperature": "Mean temperature of the unlabelled images",
    "lr": "Learning rate",
}
"""Titles of the curves, by key in metrics.jsonl."""
SCORES = {"seen": "var(--seen)", "novel": "var(--novel)", "all": "var(--all)"}


"""Colours of the accuracies."""


def headline_section(facts: Facts) -> Html:
    """Return the accuracies of a run, or its class sizes if no true classes are known, and its key facts."""
    scores = facts.scores
    strict = scores["protocols"].get("trssl")
    if strict:
        lead = f"Accuracy in % on the {scores['part']} images, under the protocol trssl."
        result = join(_big_numbers(strict), tag("p", lead, class_="lead"), _protocols(scores))
    else:
        result = _class_sizes(facts)
    notes = [tag("p", note, class_="warning") for note in facts.notes]
    meaning = (
        "A known (seen) class had labelled images in training. A discovered (novel) class had none: "
        "the model found it among the unlabelled images."
    )
    return join(
        *notes,
        tag("p", meaning, class_="lead"),
        tag("div", tag("div", result), _key_facts(facts), class_="beside even"),
    )


def _big_numbers(accuracy: dict[str, float | None]) -> Html:
    meanings = {"seen": "classes with labels", "novel": "classes without labels", "all": "all classes"}
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
    agreement = f"Agreement with the true classes (1 is perfect): NMI {scores['nmi']:.3f}, ARI {scores['ari']:.3f}."
    return join(
        table(("protocol", "Seen", "Novel", "All", "what it counts"), rows, "numbers described"),
        tag("p", agreement, class_="small"),
    )


def _class_sizes(facts: Facts) -> Html:
    """Return the number of images in each class, for a run whose true classes are unknown."""
    if not facts.parts:
        return tag("p", "There are no predictions.", class_="lead")
    sizes = np.bincount(facts.parts["unlabelled"].predicted, minlength=len(facts.names))
    rows = [
        (
            name,
            "discovered" if number >= facts.num_seen else "known",
            f"{sizes[number]:,}",
            f"{100 * sizes[number] / sizes.sum():.1f} %",
        )
        for number, name in enumerate(facts.names)
    ]
    in_discovered = int(sizes[facts.num_seen :].sum())
    lead = (
        f"The model puts {in_discovered:,} of {sizes.sum():,} unlabelled images into discovered classes. "
        "The true classes are unknown, so there is no accuracy."
    )
    listing = tag("div", table(("class", "kind", "images", "proportion"), rows, "numbers"), class_="tall")
    return join(tag("p", lead, class_="lead"), listing)


def _key_facts(facts: Facts) -> Html:
    config, summary = facts.config, facts.summary
    num_discovered = len(facts.names) - facts.num_seen
    origin = "number estimated" if summary.get("num_classes_estimated") else "number not estimated"
    images = [
        f"{facts.num_labelled:,} labelled",
        *(f"{len(found.samples):,} {part}" for part, found in facts.parts.items()),
    ]
    left = "" if facts.step == config.training.steps else f" of {config.training.steps:,}, not finished"
    lines = {
        "data": config.data,
        "images": ", ".join(images),
        "classes": f"{len(facts.names)}: {facts.num_seen} known, {num_discovered} discovered ({origin})",
        "merged by the user": _merged(facts),
        "method": f"{config.method}, network {config.training.network}",
        "backbone": _backbone(facts.run.read_json("backbone.json")),
        "initial weights": _start(config.training),
        "turned off": ", ".join(summary.get("switches", [])),
        "steps": f"{facts.step:,}{left} ({duration(facts.seconds)})",
        "relayed at step": ", ".join(f"{step:,}" for step in summary.get("relayed", [])),
        "device": summary.get("device") or (facts.sessions[-1].get("device") if facts.sessions else None),
        "seed": config.seed,
        "broken images left out": summary.get("dropped_images") or None,
        "accuracy of probes on the features": _probes(summary.get("probes")),
    }
    entries = [join(tag("dt", name), tag("dd", value)) for name, value in lines.items() if value not in (None, "")]
    return tag("dl", *entries, class_="facts")


def _merged(facts: Facts) -> str | None:
    count = len(facts.classes.outputs) - len(facts.names)
    return f"{count} fewer classes than trained; the accuracies are for the classes as trained" if count else None


def _backbone(description: dict[str, Any] | None) -> str | None:
    return description and f"{description['name']} (licence of the weights: {description['licence']})"


def _start(training: Training) -> str | None:
    """Return the source of the initial weights, or None if they are random."""
    if training.start == FEATURES_RUN:
        steps = f", {training.start_steps:,} steps" if training.start_steps else ""
        return f"features trained before, without labels{steps}"
    return training.start


def _probes(probes: dict[str, float] | None) -> str | None:
    return probes and ", ".join(f"{name} {value:.1f} %" for name, value in probes.items())


# Curves ----------------------------------------------------------------------------------------------------------


def curves_section(facts: Facts) -> Html | None:
    """Return the curves of the training metrics, or None if there are none."""
    lines = facts.metrics
    accuracy = [
        Line(name if model == "average" else f"{name}, student", points(lines, model, name), colour, model == "student")
        for model in ("average", "student")
        for name, colour in SCORES.items()
    ]
    accuracies = line_chart("Accuracy (%) of the averaged model and of the student", accuracy, "step")
    others = [
        line_chart(title, [Line(title, points(lines, key), "var(--accent)")], "step") for key, title in CURVES.items()
    ]
    charts = [chart for chart in (accuracies, *others) if chart]
    if not charts:
        return None
    lead = "The averaged model makes the predictions. The student is the trained network whose weights it averages."
    return join(tag("p", lead, class_="lead") if accuracies else None, tag("div", *charts, class_="charts"))


def points(metrics: list[dict[str, Any]], key: str, inner: str | None = None) -> list[tuple[float, float]]:
    """Return (step, value) for each line of metrics with this key, or with `inner` inside this key."""
    values = [(line["step"], line.get(key)) for line in metrics]
    if inner:
        values = [(step, (value or {}).get(inner)) for step, value in values]
    return [(step, value) for step, value in values if value is not None]


def proportions_section(facts: Facts) -> Html:
    """Return the assumed and the predicted class proportions."""
    predicted = np.bincount(facts.parts["unlabelled"].predicted, minlength=len(facts.names))
    *earlier, assumed = facts.priors.values()
    when = "as training estimated it in the end" if earlier else "as assumed before training"
    lead = (
        f"The proportion of each class among the unlabelled images: {when} "
        f"(setting prior: {facts.config.problem.prior}), and as predicted. "
        "Training pulls the predicted proportions towards the assumed ones. "
        "A class that stays far below its assumed proportion was hard to find."
    )
    keys = tag(
        "p",
        tag("span", tag("i", class_="block assumed"), "assumed"),
        tag("span", tag("i", class_="block predicted"), "predicted"),
        class_="legend",
    )
    bars = proportion_bars(facts.names, assumed.tolist(), (predicted / max(predicted.sum(), 1)).tolist())
    history = tag("div", _estimated_proportions(facts), class_="charts") if earlier else None
    return join(tag("p", lead, class_="lead"), keys, tag("div", bars, class_="tall"), history)


def _estimated_proportions(facts: Facts) -> Html | None:
    """Return the estimated proportions over the steps, of the classes that changed most."""
    priors = 100 * np.stack(list(facts.priors.values()))
    changed = sorted(np.argsort(-np.abs(priors[-1] - priors[0]), kind="stable")[:DISTINCT_COLOURS])
    lines = [
        Line(facts.names[number], list(zip(facts.priors, priors[:, number].tolist(), strict=True)), class_colour(place))
        for place, number in enumerate(changed)
    ]
    which = "" if len(changed) == len(facts.names) else f", of the {len(changed)} classes that changed most"
    return line_chart(f"Estimated proportion (%){which}", lines, "step")


def estimate_section(estimate: dict[str, Any]) -> Html:
    """Return the estimated number of classes, and its curve if the estimator has one."""
    low, high, count = estimate["low"], estimate["high"], estimate["num_classes"]
    interval = f"{low} to {high}" if high is not None else f"at least {low}, with an unknown upper limit"
    lead = (
        f"The estimator {estimate['estimator']} estimates {count} classes in total, known and discovered. "
        f"The likely number is {interval}."
    )
    curve = [
        Line(name, [(score["k"], score[key]) for score in estimate["curve"]], colour, is_dashed)
        for key, name, colour, is_dashed in (
            ("reassigned", "with reassignment", "var(--novel)", False),
            ("accuracy", "without", "var(--muted)", True),
        )
    ]
    title = "Labelled images matched by k-means (%)"
    chart = line_chart(title, curve, "number of classes k", (low, high or math.inf), count)
    return join(tag("p", lead, class_="lead"), tag("div", chart, class_="charts") if chart else None)


# How it was made -------------------------------------------------------------------------------------------------


def settings_section(facts: Facts) -> Html:
    """Return the commands, the configuration and the environment of a run."""
    values = flatten(facts.config)
    rows = [
        (tag("span", option.name, class_="mono"), tag("span", values[option.key], class_="mono"), option.help)
        for option in options(*facts.config.methods)
        if values[option.key] is not None
    ]
    latest = facts.sessions[-1] if facts.sessions else {}
    environment = [
        (name.replace("_", " "), tag("span", value, class_="mono"))
        for name, value in latest.items()
        if name != "command"
    ]
    if len(facts.sessions) > 1:
        environment.append(("resumed", f"{len(facts.sessions) - 1} times"))
    parts = [_reproduce(facts)]
    parts.append(
        tag(
            "details",
            tag("summary", tag("h3", "Configuration")),
            table(("setting", "value", "meaning"), rows, "described settings"),
            class_="card",
        )
    )
    if environment:
        parts.append(
            tag("details", tag("summary", tag("h3", "Environment")), table(("", ""), environment), class_="card")
        )
    return join(*parts)


def _reproduce(facts: Facts) -> Html:
    if facts.config.data.startswith(IN_MEMORY):
        lead = "The data was in memory, so only the program that created it can train this run again."
        return tag("p", lead, class_="lead")
    with_config = shlex.join(["openworld", "train", "--config", str(facts.run.path.absolute() / "config.toml")])
    first = facts.sessions[0].get("command", []) if facts.sessions else []
    original = shlex.join(map(str, first)) if first[:1] == ["openworld"] else None
    return join(
        tag("p", "Train again with the same settings, in a new folder:", class_="lead"),
        _command(with_config),
        join(tag("p", "The command that started this run:", class_="lead"), _command(original)) if original else None,
    )


def _command(text: str) -> Html:
    return tag(
        "div",
        tag("pre", tag("code", text), tabindex=0),
        tag("button", "copy", type="button", class_="copy"),
        class_="command",
    )
