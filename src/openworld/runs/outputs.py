"""What a run's network said of every unlabelled and test sample, kept in the run folder; predictions.csv tells it.

The raw outputs are kept since names and merged classes come later: predictions are made from them anew.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.data.batches import Batches
from openworld.data.problem import OpenWorld, load_problem
from openworld.nets.network import Network
from openworld.ops.uncertainty import measure_uncertainty
from openworld.runs.classes import Classes
from openworld.runs.evaluation import load_average, predict_logits
from openworld.runs.folder import RunFolder

FILE = "outputs.safetensors"
PARTS, TENSORS = ("unlabelled", "test"), ("logits", "uncertainty", "truth")


@dataclass(frozen=True)
class Outputs:
    """Of the N samples of one part."""

    samples: tuple[str | int, ...]
    """How a person finds each again: its path, or its position."""
    logits: Tensor
    """(N, K)."""
    uncertainty: Tensor
    """(N,) over random views."""
    truth: Tensor
    """(N,) true classes, -1 where nobody knows."""


def compute_outputs(network: Network, world: OpenWorld, batches: Batches, config: Config) -> dict[str, Outputs]:
    """By part, of a network as it answers."""
    outputs = {}
    for part, truth in world.truths.items():
        answers = batches.answers(network, f"predict-{part}", 0)
        chunks, requested = truth.samples.chunks(batches.rows_at_once), config.answers
        uncertainty = measure_uncertainty(answers, chunks, requested.uncertainty_views, requested.temperature)
        logits = predict_logits(network, truth, world.training)
        outputs[part] = Outputs(truth.names, logits.cpu(), uncertainty.cpu(), torch.from_numpy(truth.labels))
    return outputs


def write_outputs(run: RunFolder, outputs: dict[str, Outputs]) -> None:
    tensors = {f"{part}.{name}": getattr(said, name).contiguous() for part, said in outputs.items() for name in TENSORS}
    samples = {part: json.dumps(said.samples) for part, said in outputs.items()}
    run.write(FILE, to_bytes(tensors, metadata=samples))


def read_outputs(run: RunFolder) -> dict[str, Outputs] | None:
    """Those of a finished run; none where there are none, or they are damaged and can be made again."""
    try:
        with safe_open(run.path / FILE, "pt") as file:
            samples = file.metadata()
            return {
                part: Outputs(
                    tuple(json.loads(samples[part])), *(file.get_tensor(f"{part}.{name}") for name in TENSORS)
                )
                for part in PARTS  # in this order: the file's own differs from process to process
                if part in samples
            }
    except (FileNotFoundError, SafetensorError, TypeError, ValueError):
        return None


def outputs_of(
    run: RunFolder, runtime: Runtime, warn: Callable[[str], None], world: OpenWorld | None = None
) -> dict[str, Outputs]:
    """What is kept of a finished run; else what its newest checkpoint says now, for which the data is needed.

    `world` is the problem of the run, where it is at hand already.
    """
    kept = read_outputs(run) if run.summary() else None
    if kept is not None:
        return kept
    config = run.config()
    world = world or load_problem(config, runtime, run.split())
    network, _ = load_average(run, config, runtime.device, warn)
    method = config.options.method()
    batches = Batches(world.training, config.training, config.seed, method.views(config), method.uses_labels)
    return compute_outputs(network, world, batches, config)


# As people read them --------------------------------------------------------------------------------------------


class TopPrediction(NamedTuple):
    """What is predicted for one sample."""

    prediction: str
    confidence: float
    runner_up: str


def top_predictions(shares_NM: Tensor, classes: Classes) -> Iterator[TopPrediction]:
    """From the shares of the classes to the best one, and the one after it."""
    names = classes.names
    best = shares_NM.topk(min(2, len(names)), dim=1)
    for confidences, places in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        yield TopPrediction(names[places[0]], confidences[0], names[places[1]] if len(places) > 1 else "")


def class_probabilities(logits_NK: Tensor, classes: Classes, temperature: float) -> Tensor:
    """(N, M) the probability of each class."""
    return classes.sum_by_class((logits_NK / temperature).softmax(dim=1))


def class_sizes(said: Outputs, classes: Classes, temperature: float) -> dict[str, int]:
    """How many of the samples are predicted as each class."""
    best = class_probabilities(said.logits, classes, temperature).argmax(dim=1)
    return dict(zip(classes.names, best.bincount(minlength=len(classes.names)).tolist(), strict=True))


def write_predictions(run: RunFolder, outputs: dict[str, Outputs], classes: Classes, temperature: float) -> None:
    """predictions.csv: for every unlabelled and test sample."""
    rows = []
    for part, said in outputs.items():
        found = top_predictions(class_probabilities(said.logits, classes, temperature), classes)
        for sample, spread, answer in zip(said.samples, said.uncertainty.tolist(), found, strict=True):
            confidence, spread = f"{answer.confidence:.4f}", f"{spread:.4f}"
            rows.append((sample, part, answer.prediction, confidence, spread, answer.runner_up))
    sample = "path" if isinstance(rows[0][0], str) else "index"
    run.write_csv("predictions.csv", [sample, "split", "prediction", "confidence", "uncertainty", "runner_up"], rows)
