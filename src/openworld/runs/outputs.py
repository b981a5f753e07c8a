"""The network's outputs for every unlabelled and test sample of a run, and predictions.csv, which is made from them.

The run folder keeps the raw outputs, because users name and merge classes later. Predictions are then made again.
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
from openworld.data.problem import OpenWorld
from openworld.nets.network import Network
from openworld.ops.uncertainty import measure_uncertainty
from openworld.runs.classes import Classes
from openworld.runs.evaluation import load_average, predict_logits
from openworld.runs.folder import RunFolder
from openworld.runs.world import open_world

FILE = "outputs.safetensors"
PARTS, TENSORS = ("unlabelled", "test"), ("logits", "uncertainty", "truth")


@dataclass(frozen=True)
class Outputs:
    """The outputs for the N samples of one part."""

    samples: tuple[str | int, ...]
    """The path of each sample, or its position in the data."""
    logits: Tensor
    """(N, K) logits."""
    uncertainty: Tensor
    """(N,) standard deviation, over random views, of the probability of the most probable class."""
    truth: Tensor
    """(N,) true classes, -1 if unknown."""


def compute_outputs(network: Network, world: OpenWorld, batches: Batches, config: Config) -> dict[str, Outputs]:
    """Return the outputs of each part. The network must be in evaluation mode."""
    outputs = {}
    for part, truth in world.truths.items():
        predict_views = batches.view_predictor(network, f"predict-{part}", 0)
        chunks, settings = truth.samples.chunks(batches.rows_at_once), config.answers
        uncertainty = measure_uncertainty(predict_views, chunks, settings.uncertainty_views, settings.temperature)
        logits = predict_logits(network, truth, world.training)
        outputs[part] = Outputs(truth.names, logits.cpu(), uncertainty.cpu(), torch.from_numpy(truth.labels))
    return outputs


def write_outputs(run: RunFolder, outputs: dict[str, Outputs]) -> None:
    tensors = {f"{part}.{name}": getattr(each, name).contiguous() for part, each in outputs.items() for name in TENSORS}
    samples = {part: json.dumps(each.samples) for part, each in outputs.items()}
    run.write(FILE, to_bytes(tensors, metadata=samples))


def read_outputs(run: RunFolder) -> dict[str, Outputs] | None:
    """Return the stored outputs of a run, or None if they are missing or damaged."""
    try:
        with safe_open(run.path / FILE, "pt") as file:
            samples = file.metadata()
            return {
                part: Outputs(
                    tuple(json.loads(samples[part])), *(file.get_tensor(f"{part}.{name}") for name in TENSORS)
                )
                for part in PARTS  # the order in the file differs between processes
                if part in samples
            }
    except (FileNotFoundError, SafetensorError, TypeError, ValueError):
        return None


def outputs_of(
    run: RunFolder, runtime: Runtime, warn: Callable[[str], None], world: OpenWorld | None = None
) -> dict[str, Outputs]:
    """Return the stored outputs of a finished run, or compute them from its newest checkpoint, which needs the data.

    `world` is the problem of the run, if the caller has loaded it already.
    """
    stored = read_outputs(run) if run.summary() else None
    if stored is not None:
        return stored
    config = run.config()
    world = world or open_world(config, runtime, run)
    network, _ = load_average(run, config, runtime.device, warn)
    method = config.options.method()
    batches = Batches(world.training, config.training, config.seed, method.views(config), method.uses_labels)
    return compute_outputs(network, world, batches, config)


# Predictions ----------------------------------------------------------------------------------------------------


class TopPrediction(NamedTuple):
    """The most probable class of a sample, its probability, and the second most probable class."""

    prediction: str
    confidence: float
    runner_up: str


def top_predictions(probabilities_NM: Tensor, classes: Classes) -> Iterator[TopPrediction]:
    """Yield the two most probable classes of each sample."""
    names = classes.names
    best = probabilities_NM.topk(min(2, len(names)), dim=1)
    for confidences, positions in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        yield TopPrediction(names[positions[0]], confidences[0], names[positions[1]] if len(positions) > 1 else "")


def class_probabilities(logits_NK: Tensor, classes: Classes, temperature: float) -> Tensor:
    """Return (N, M): the probability of each class."""
    return classes.sum_by_class((logits_NK / temperature).softmax(dim=1))


def class_sizes(outputs: Outputs, classes: Classes, temperature: float) -> dict[str, int]:
    """Return how many samples are predicted as each class."""
    best = class_probabilities(outputs.logits, classes, temperature).argmax(dim=1)
    return dict(zip(classes.names, best.bincount(minlength=len(classes.names)).tolist(), strict=True))


def write_predictions(run: RunFolder, outputs: dict[str, Outputs], classes: Classes, temperature: float) -> None:
    """Write predictions.csv, with a line for every unlabelled and test sample."""
    rows = []
    for part, of_part in outputs.items():
        tops = top_predictions(class_probabilities(of_part.logits, classes, temperature), classes)
        for sample, deviation, top in zip(of_part.samples, of_part.uncertainty.tolist(), tops, strict=True):
            confidence, uncertainty = f"{top.confidence:.4f}", f"{deviation:.4f}"
            rows.append((sample, part, top.prediction, confidence, uncertainty, top.runner_up))
    sample = "path" if isinstance(rows[0][0], str) else "index"
    run.write_csv("predictions.csv", [sample, "split", "prediction", "confidence", "uncertainty", "runner_up"], rows)
