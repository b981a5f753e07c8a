"""Describe a trained model from its run folder alone: facts for programs, and a model card for people."""

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
"""Mark near the beginning of every exported file. `openworld export` replaces only files with this mark."""


def facts_of(run: RunFolder, model: Model) -> dict[str, Any]:
    """Return what is needed to rebuild and use the model, and everything that is recorded about its training."""
    config, classes = run.config(), model.classes
    split, recorded = run.split_and_facts()
    summary = run.summary()
    # The summary of another step describes other weights.
    is_finished = summary is not None and summary["steps"] == model.step
    outputs = (read_outputs(run) if is_finished else None) or {}
    unlabelled = outputs.get("unlabelled")
    return {
        "generated_by": GENERATED_BY,
        "data": Path(config.data).name,
        "network": config.training.network,
        "backbone": model.backbone,
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
        "class_sizes": class_sizes(unlabelled, classes, model.temperature) if unlabelled else None,
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
    """Describe in words how to turn a sample into an input of the model."""
    if not model.takes_images:
        return (
            f"pass rows of {model.sample_shape[0]} float32 features, like those of the training data. "
            "The model normalises them"
        )
    channels, side, _ = model.sample_shape
    shown = model.family.plain(torch.zeros(1, *model.sample_shape, dtype=torch.uint8)).shape[-1]
    crop = f", crops the central {shown} x {shown} pixels" if shown < side else ""
    colours = "RGB, with white behind transparent parts" if channels == 3 else "gray"
    return (
        f"convert the image to {colours}. Turn it upright (EXIF). Squash it to {side} x {side} pixels with Pillow's "
        "bilinear filter; do not crop it. "
        f"Pass uint8 values from 0 to 255, channels first: (batch, {channels}, {side}, {side}). "
        f"The model scales them to [0, 1]{crop} and normalises them"
    )


def _estimate(run: RunFolder) -> dict[str, Any] | None:
    """Return the estimated number of classes with its interval, or None."""
    estimate = run.read_json("estimate.json")
    return {name: estimate[name] for name in ("num_classes", "low", "high", "estimator")} if estimate else None


# The model card -----------------------------------------------------------------------------------------------


def markdown(run: RunFolder, facts: dict[str, Any]) -> str:
    """Return the model card in the format of model hubs."""
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
    yield f"# {_escaped(facts['data'])}: {len(facts['classes'])} classes, {num_novel} of them found without labels"
    shape = " x ".join(map(str, facts["sample_shape"]))
    yield (
        f"A classifier (network `{facts['network']}`, {kind} of shape {shape}), trained with openworld's method "
        f"`{facts['config']['method']}` on labelled and unlabelled {kind}. "
        f"It predicts {facts['num_seen']} **seen** classes, which had labelled {kind} in training, and {num_novel} "
        f"**novel** classes, which had none and were found among the unlabelled {kind}. "
        f"The weights are the averaged weights of step {facts['step']:,} of {facts['steps']:,}."
    )
    if facts["backbone"]:
        backbone = facts["backbone"]
        yield (
            f"It contains the pretrained network `{backbone['name']}`, whose features it classifies. Licence of these "
            f"weights: {backbone['licence']}. sha256 before training: `{backbone['sha256']}`. A pretrained network "
            "has seen many kinds of objects with labels: novel here means without a label in this data."
        )
    if facts["results"] is None:
        yield "**No result is recorded for these weights**: the run is not finished, or these are not its last weights."
    yield "## Intended use"
    yield (
        f"Use the model to sort {kind} that are similar to the training data into these classes, and to explore the "
        "novel classes. A person should look at a novel class before anything depends on it."
    )


def _classes(facts: dict[str, Any]) -> Iterator[str]:
    outputs_of: dict[str, list[str]] = {name: [] for name in facts["classes"]}
    for output in facts["outputs"]:
        outputs_of[facts["given_names"].get(output, output)].append(output)
    rows = []
    for name, outputs in outputs_of.items():
        kind = "novel" if name in facts["novel_classes"] else "seen"
        size = f"{facts['class_sizes'][name]:,}" if facts["class_sizes"] else "not recorded"
        renamed_from = "" if outputs == [name] else _escaped(" + ".join(outputs))
        rows.append((_escaped(name), kind, size, renamed_from))
    yield _table(("class", "kind", "unlabelled samples predicted as this class", "network outputs"), rows)


def _training_data(facts: dict[str, Any]) -> Iterator[str]:
    samples, problem = facts["samples"], facts["config"]["problem"]
    counts = f"{samples['labelled']:,} labelled and {samples['unlabelled']:,} unlabelled {_kind(facts)}"
    tested = f", and {samples['test']:,} for testing" if samples["test"] else ""
    lines = [f"`{facts['config']['data']}`: {counts} for training{tested}."]
    if samples["split_came_with_data"]:
        lines.append("The data itself says which samples are labelled.")
    else:
        lines.append(
            f"The data set is fully labelled. openworld hid all labels of {problem['novel']:g}% of the classes, and "
            f"kept the labels of {problem['labelled']:g}% of the samples of the other classes "
            f"(imbalance {problem['imbalance']:g}, seed {facts['config']['seed']})."
        )
    if samples["dropped"]:
        lines.append(f"{samples['dropped']:,} broken files were left out.")
    lines.append(f"Class proportions that training assumed for the unlabelled samples (prior): `{problem['prior']}`.")
    lines.append(f"Fingerprint of the data: `{samples['fingerprint']}`.")
    yield "\n".join(f"- {line}" for line in lines)


def _results(facts: dict[str, Any]) -> Iterator[str]:
    results = facts["results"]
    if results is None:
        yield "No results are recorded for these weights."
        return
    if not results["protocols"]:
        yield "Accuracy was not measured, because the true class of every test or unlabelled sample is unknown."
        return
    part = "the test part" if results["part"] == "test" else "the unlabelled samples, which the model was trained on"
    yield f"Accuracy in % on {part}, with the last weights of the run. No weights were selected by their accuracy."
    rows = [(name, *map(score_text, scores.values())) for name, scores in results["protocols"].items()]
    yield _table(("protocol", "seen classes", "novel classes", "all classes"), rows)
    yield f"Agreement with the true classes (1 is perfect): NMI {results['nmi']:.3f}, ARI {results['ari']:.3f}."
    yield "\n".join(f"- `{name}`: {PROTOCOLS[name]}" for name in results["protocols"])
    if facts["given_names"]:
        yield "These results are for the network outputs as trained, before users named or merged classes."


def _limits(facts: dict[str, Any]) -> Iterator[str]:
    lines = []
    if facts["novel_classes"]:
        lines.append(
            "The novel classes are clusters. Nothing guarantees that a cluster is a single class to a person, or that "
            "it is the whole class."
        )
    if facts["given_names"]:
        given = ", ".join(f"{output} is {name}" for output, name in facts["given_names"].items())
        lines.append(f"Users named or merged network outputs: {_escaped(given)}.")
    lines.append(_class_count(facts))
    lines.append("The model assigns every input to one of these classes. It cannot say that none of them fits.")
    lines.append(
        f"Probabilities are a softmax at the temperature of training, {facts['temperature']:g}. "
        "They were not calibrated."
    )
    if facts["results"] is None or not facts["results"]["protocols"]:
        lines.append("The accuracy of the model is unknown.")
    yield "\n".join(f"- {line}" for line in lines)


def _class_count(facts: dict[str, Any]) -> str:
    requested, estimate = facts["config"]["problem"].get("num_classes"), facts["estimate"]
    if requested is None:
        source = "is that of the data set. It was not estimated"
    elif estimate and estimate["num_classes"] == requested:
        low, high = estimate["low"], estimate["high"]
        interval = f"{low} or more" if high is None else f"{low} to {high}"
        source = f"was estimated from the data ({interval}, by `{estimate['estimator']}`)"
    else:
        source = "was set before training. It was not estimated from the data"
    return f"The model was trained for {len(facts['outputs'])} classes. This number {source}."


def _usage(facts: dict[str, Any]) -> Iterator[str]:
    source, dtype = ("images", "uint8") if _takes_images(facts) else ("features", "float32")
    shape = ", ".join(map(str, facts["sample_shape"]))
    yield f"Preprocessing: {facts['preprocessing']}."
    yield f"With the ONNX file, where `{source}` is a {dtype} array of shape (batch, {shape}):"
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
    yield f"With the weights and their JSON card, where `{source}` is a tensor of the same shape and type:"
    yield "\n".join(
        (
            "```python",
            "from openworld import load_exported",
            "",
            'model = load_exported("model.safetensors")',
            f"probabilities = model.probabilities({source})  # in the order of model.classes.names",
            "```",
        )
    )


def _reproduction(run: RunFolder, facts: dict[str, Any]) -> Iterator[str]:
    commands = [shlex.join(session["command"]) for session in facts["sessions"]]
    if commands:
        yield "The commands that trained the model:"
        yield "\n".join(("```", *commands, "```"))
    yield "The complete configuration:"
    yield "\n".join(("```toml", write_toml(run.config()).strip(), "```"))


def _environment(facts: dict[str, Any]) -> Iterator[str]:
    if not facts["sessions"]:
        yield "Not recorded."
        return
    names = ("openworld", "python", "torch", "device", "platform")
    rows = [tuple(_escaped(str(session.get(name, "-"))) for name in names) for session in facts["sessions"]]
    yield _table(names, rows)
    if facts["results"]:
        yield f"Training took {facts['results']['seconds']:,} seconds."


def _takes_images(facts: dict[str, Any]) -> bool:
    return len(facts["sample_shape"]) == 3


def _kind(facts: dict[str, Any]) -> str:
    return "images" if _takes_images(facts) else "features"


def _escaped(text: str) -> str:
    """Return text on one line, with the special characters of Markdown escaped."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(text.split()))


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *rows))
