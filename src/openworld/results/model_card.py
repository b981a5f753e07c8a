"""What a trained model is, from its run folder alone: facts for machines, and a card for people."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from openworld import __version__
from openworld.core.config_files import as_tree, write_toml
from openworld.ops.metrics import PROTOCOLS, score_text
from openworld.runs.folder import RunFolder
from openworld.runs.model import Model
from openworld.runs.outputs import class_sizes, read_outputs

GENERATED_BY = f"openworld export {__version__}"
"""Near the beginning of every file that is exported: by this we know our own."""


def facts_of(run: RunFolder, model: Model) -> dict[str, Any]:
    """All that is needed to rebuild and to use the model, and all that is recorded of how it came about."""
    config, classes = run.config(), model.classes
    split, recorded = run.split_and_facts()
    summary = run.summary()
    is_finished = summary is not None and summary["steps"] == model.step  # or it is the result of other weights
    outputs = (read_outputs(run) if is_finished else None) or {}
    said = outputs.get("unlabelled")
    return {
        "generated_by": GENERATED_BY,
        "data": Path(config.data).name,
        "network": config.training.network,
        "sample_shape": list(model.sample_shape),
        "preprocessing": preprocessing(model),
        "views": config.training.augment,
        "temperature": model.temperature,
        "classes": list(classes.names),
        "novel_classes": list(classes.names[classes.num_seen :]),
        "outputs": list(classes.outputs),
        "num_seen": classes.num_seen,
        "given_names": classes.given,
        "step": model.step,
        "steps": config.training.steps,
        "class_sizes": class_sizes(said, classes, model.temperature) if said else None,
        "samples": {
            "labelled": len(split.labelled),
            "unlabelled": len(split.unlabelled),
            "test": len(outputs["test"].samples) if "test" in outputs else None,
            "dropped": len(recorded.get("dropped", {})),
            "fingerprint": recorded.get("fingerprint"),
            "split_came_with_data": recorded.get("split_is_given", not split.class_sizes),
        },
        "estimate": _estimate(run),
        "results": summary if is_finished else None,
        "config": as_tree(config),
        "sessions": (run.read_json("environment.json") or {}).get("sessions", []),
    }


def preprocessing(model: Model) -> str:
    """From a sample as people have it to what the model takes, in words."""
    if not model.takes_images:
        return f"rows of {model.sample_shape[0]} float32 features, as in the training data; normalisation is inside"
    channels, side, _ = model.sample_shape
    shown = model.family.plain(torch.zeros(1, *model.sample_shape, dtype=torch.uint8)).shape[-1]
    crop = f", the crop of the central {shown} x {shown} pixels" if shown < side else ""
    kind = "RGB, transparent parts on white" if channels == 3 else "gray"
    return (
        f"{kind}; upright (EXIF); squashed, not cropped, to {side} x {side} pixels with Pillow's bilinear filter; "
        f"uint8 of 0 to 255, channels first: (batch, {channels}, {side}, {side}). "
        f"Scaling to [0, 1]{crop} and normalisation are inside"
    )


def _estimate(run: RunFolder) -> dict[str, Any] | None:
    estimate = run.read_json("estimate.json")
    return {name: estimate[name] for name in ("num_classes", "low", "high", "estimator")} if estimate else None


# For people ---------------------------------------------------------------------------------------------------


def markdown(run: RunFolder, facts: dict[str, Any]) -> str:
    """The model card, in the form that model hubs show."""
    sections = {
        "Classes": _classes(facts),
        "Training data": _training_data(facts),
        "Results": _results(facts),
        "Limits": _limits(facts),
        "How to use": _usage(facts),
        "How to reproduce": _reproduction(run, facts),
        "Environment": _environment(facts),
    }
    blocks = [_front_matter(facts), *_introduction(facts)]
    for title, lines in sections.items():
        blocks += [f"## {title}", *lines]
    return "\n\n".join(blocks) + "\n"


def _front_matter(facts: dict[str, Any]) -> str:
    task = "image-classification" if _takes_images(facts) else "tabular-classification"
    tags = "tags: [semi-supervised-learning, novel-class-discovery, open-world]"
    lines = (f"generated_by: {GENERATED_BY}", "library_name: openworld", f"pipeline_tag: {task}", tags)
    return "\n".join(("---", *lines, "---"))


def _introduction(facts: dict[str, Any]) -> Iterator[str]:
    kind, num_novel = _kind(facts), len(facts["novel_classes"])
    yield f"# {_plain(facts['data'])}: {len(facts['classes'])} classes, {num_novel} of them found without labels"
    shape = " x ".join(map(str, facts["sample_shape"]))
    yield (
        f"A classifier (network `{facts['network']}`, {kind} of {shape}) trained by openworld's "
        f"`{facts['config']['method']}` on labelled and unlabelled {kind}. "
        f"It tells {facts['num_seen']} classes that were labelled, and {num_novel} that nobody had labelled. "
        f"These are the averaged weights of step {facts['step']:,} of {facts['steps']:,}."
    )
    if facts["results"] is None:
        yield "**No result is recorded for these weights**: the run is not finished, or they are not its last ones."
    yield "## Intended use"
    yield (
        f"To sort {kind} like those that it was trained on into these classes, and to look through what was found. "
        "A person should look at a found class before anything depends on it."
    )


def _classes(facts: dict[str, Any]) -> Iterator[str]:
    made_of: dict[str, list[str]] = {name: [] for name in facts["classes"]}
    for output in facts["outputs"]:
        made_of[facts["given_names"].get(output, output)].append(output)
    rows = []
    for name, outputs in made_of.items():
        kind = "found" if name in facts["novel_classes"] else "labelled"
        size = f"{facts['class_sizes'][name]:,}" if facts["class_sizes"] else "not recorded"
        found_as = "" if outputs == [name] else _plain(" + ".join(outputs))
        rows.append((_plain(name), kind, size, found_as))
    yield _table(("class", "kind", "unlabelled samples put there", "made of the outputs"), rows)


def _training_data(facts: dict[str, Any]) -> Iterator[str]:
    samples, problem = facts["samples"], facts["config"]["problem"]
    counts = f"{samples['labelled']:,} labelled and {samples['unlabelled']:,} unlabelled {_kind(facts)}"
    tested = f", and {samples['test']:,} for testing" if samples["test"] else ""
    lines = [f"`{facts['config']['data']}`: {counts} to train on{tested}."]
    if samples["split_came_with_data"]:
        lines.append("Which of them are labelled came with the data.")
    else:
        lines.append(
            f"A labelled set made a problem: {problem['novel']:g}% of its classes are new, {problem['labelled']:g}% of "
            f"the samples of the others keep their labels; imbalance {problem['imbalance']:g}, "
            f"seed {facts['config']['seed']}."
        )
    if samples["dropped"]:
        lines.append(f"{samples['dropped']:,} broken files were left out.")
    lines.append(f"Shares of the classes among the unlabelled samples, as training assumed them: `{problem['prior']}`.")
    lines.append(f"Fingerprint of the data: `{samples['fingerprint']}`.")
    yield "\n".join(f"- {line}" for line in lines)


def _results(facts: dict[str, Any]) -> Iterator[str]:
    results = facts["results"]
    if results is None:
        yield "None are recorded for these weights."
        return
    if not results["protocols"]:
        yield "Accuracy was not measured: nobody told the true classes of any sample that it could be measured on."
        return
    part = "the test part" if results["part"] == "test" else "the unlabelled samples, which it was trained on"
    yield f"Per cent of {part}, by the last weights of the run; none were chosen by their score."
    rows = [(name, *map(score_text, scores.values())) for name, scores in results["protocols"].items()]
    yield _table(("protocol", "known classes", "new classes", "all"), rows)
    yield f"NMI {results['nmi']:.3f}, ARI {results['ari']:.3f}."
    yield "\n".join(f"- `{name}`: {PROTOCOLS[name]}" for name in results["protocols"])
    if facts["given_names"]:
        yield "They were measured on the outputs as they were trained, before people named or merged any."


def _limits(facts: dict[str, Any]) -> Iterator[str]:
    lines = []
    if facts["novel_classes"]:
        lines.append(
            "The found classes are clusters: nothing says that each is one class to a person, or that it is all of it."
        )
    if facts["given_names"]:
        given = ", ".join(f"{output} is {name}" for output, name in facts["given_names"].items())
        lines.append(f"What people named or put together: {_plain(given)}.")
    lines.append(_class_count(facts))
    lines.append("Whatever it is shown gets one of these classes: there is no answer that says none of them.")
    lines.append(
        f"Probabilities are a softmax at the temperature of training, {facts['temperature']:g}; "
        "they were not calibrated."
    )
    if facts["results"] is None or not facts["results"]["protocols"]:
        lines.append("Its accuracy is not known.")
    yield "\n".join(f"- {line}" for line in lines)


def _class_count(facts: dict[str, Any]) -> str:
    requested, estimate = facts["config"]["problem"].get("num_classes"), facts["estimate"]
    if requested is None:
        source = "is that of the data set; it was not estimated"
    elif estimate and estimate["num_classes"] == requested:
        low, high = estimate["low"], estimate["high"]
        interval = f"{low} or more" if high is None else f"{low} to {high}"
        source = f"was estimated from the data ({interval}, by `{estimate['estimator']}`)"
    else:
        source = "was set beforehand; it was not estimated from the data"
    return f"The number of classes that was trained for, {len(facts['outputs'])}, {source}."


def _usage(facts: dict[str, Any]) -> Iterator[str]:
    source, rows = ("images", "uint8") if _takes_images(facts) else ("features", "float32")
    shape = ", ".join(map(str, facts["sample_shape"]))
    yield f"Preprocessing: {facts['preprocessing']}."
    yield f"With the ONNX file, `{source}` being an array (batch, {shape}) of {rows}:"
    yield "\n".join(
        (
            "```python",
            "import json",
            "import onnxruntime",
            "",
            'session = onnxruntime.InferenceSession("model.onnx")',
            'names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])',
            f'probabilities, embedding = session.run(None, {{"{source}": {source}}})',
            "print([names[best] for best in probabilities.argmax(axis=1)])",
            "```",
        )
    )
    yield f"With the weights and their JSON card, `{source}` being a tensor of the same kind:"
    yield "\n".join(
        (
            "```python",
            "from openworld import load_exported",
            "",
            'model = load_exported("model.safetensors")',
            f"probabilities = model.probabilities({source})  # of model.classes.names",
            "```",
        )
    )


def _reproduction(run: RunFolder, facts: dict[str, Any]) -> Iterator[str]:
    commands = [shlex.join(session["command"]) for session in facts["sessions"]]
    if commands:
        yield "\n".join(("```", *commands, "```"))
    yield "The configuration that followed from it:"
    yield "\n".join(("```toml", write_toml(run.config()).strip(), "```"))


def _environment(facts: dict[str, Any]) -> Iterator[str]:
    if not facts["sessions"]:
        yield "Not recorded."
        return
    names = ("openworld", "python", "torch", "device", "platform")
    yield _table(names, [tuple(_plain(str(session.get(name, "-"))) for name in names) for session in facts["sessions"]])
    if facts["results"]:
        yield f"Training took {facts['results']['seconds']:,} seconds."


def _takes_images(facts: dict[str, Any]) -> bool:
    return len(facts["sample_shape"]) == 3


def _kind(facts: dict[str, Any]) -> str:
    return "images" if _takes_images(facts) else "features"


def _plain(text: str) -> str:
    """Text in which Markdown sees no marks."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(text.split()))


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *rows))
