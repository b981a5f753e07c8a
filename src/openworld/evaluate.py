"""What a network makes of images whose classes are known: predictions, accuracies, tables."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openworld.config import Config
from openworld.data.batches import Batches
from openworld.data.problem import OpenWorld, Truth, pose
from openworld.errors import UserError
from openworld.metrics import (
    PROTOCOLS,
    accuracy,
    adjusted_rand_index,
    confusion_matrix,
    normalised_mutual_information,
    novel_as_seen,
)
from openworld.nets import Network, build_network
from openworld.record import RunFolder
from openworld.rng import generator
from openworld.uncertainty import measure_uncertainty


@torch.no_grad()
def predict_logits(network: Network, images: Tensor, chunk: int = 2048) -> Tensor:
    """(N, K) cosines for uint8 images, without augmentation."""
    was_training = network.training
    network.eval()
    logits = torch.cat([network(part.float() / 255) for part in images.split(chunk)])
    network.train(was_training)
    return logits


def predict_and_count(network: Network, truth: Truth, num_seen: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) logits, and the confusion matrix of true classes and predicted ids."""
    logits = predict_logits(network, truth.images).cpu().numpy()
    num_classes = max(int(truth.labels.max()) + 1, num_seen)
    return logits, confusion_matrix(truth.labels, logits.argmax(axis=1), num_classes, num_seen)


def progress_scores(network: Network, truth: Truth, num_seen: int) -> dict[str, float | None]:
    """The strict accuracies, and what novel accuracy is made of, to be logged while training.

    `novel_as_seen` is the share of novel samples lost to seen classes; `novel_only` is the accuracy that
    novel samples would have if only novel outputs could answer.
    """
    logits, counts = predict_and_count(network, truth, num_seen)
    scores = accuracy(counts, num_seen, "trssl")
    is_novel = truth.labels >= num_seen
    novel_only = None
    if is_novel.any() and logits.shape[1] > num_seen:
        among_novel = num_seen + logits[is_novel, num_seen:].argmax(axis=1)
        novel_counts = confusion_matrix(truth.labels[is_novel], among_novel, len(counts), num_seen)
        novel_only = accuracy(novel_counts, num_seen, "trssl").novel
    return {
        "seen": scores.seen,
        "novel": scores.novel,
        "all": scores.all,
        "novel_as_seen": novel_as_seen(counts, num_seen),
        "novel_only": novel_only,
    }


def evaluate_part(network: Network, world: OpenWorld, part: str) -> dict[str, Any]:
    """Accuracies on a part, `test` or `unlabelled`, under every protocol, and its NMI and ARI."""
    num_seen = world.training.num_seen
    _, counts = predict_and_count(network, world.truths[part], num_seen)
    return {
        "protocols": {protocol: vars(accuracy(counts, num_seen, protocol)) for protocol in PROTOCOLS},
        "nmi": normalised_mutual_information(counts),
        "ari": adjusted_rand_index(counts),
    }


def evaluate_run(run: RunFolder, part: str, device: torch.device, warn: Callable[[str], None]) -> dict[str, Any]:
    """The averaged model of a run's newest checkpoint, evaluated anew."""
    config = run.config()
    world = pose(config, device, run.read("split.json"))
    saved = run.newest_checkpoint(warn)
    if saved is None:
        raise UserError(f"{run.path} has no sound checkpoint: continue it with openworld train --resume")
    if saved.step < config.training.steps:
        warn(f"{run.path} is not finished: this is step {saved.step} of {config.training.steps}")
    data = world.training
    network = build_network(config.training.network, data.num_classes, data.unlabelled, generator(0, "unused"))
    saved.load_into(network, "average")
    network.to(device)
    return {"run": str(run.path), "part": part, "step": saved.step, **evaluate_part(network, world, part)}


def write_predictions(run: RunFolder, network: Network, world: OpenWorld, batches: Batches, config: Config) -> None:
    """predictions.csv: for every unlabelled and test image, by its position in its part of the data set."""
    temperature, num_views = config.trssl.temperature, config.trssl.uncertainty_views
    rows = []
    for part, truth in world.truths.items():
        positions = world.split.unlabelled if part == "unlabelled" else range(len(truth.images))
        random_view = batches.views(f"predict-{part}", 0)
        uncertainty = measure_uncertainty(network, truth.images, random_view, num_views, temperature)
        shares = (predict_logits(network, truth.images) / temperature).softmax(dim=1)
        best = shares.topk(2, dim=1)
        columns = (best.values[:, 0], uncertainty, best.indices[:, 0], best.indices[:, 1])
        for position, confidence, spread, first, second in zip(positions, *(c.tolist() for c in columns), strict=True):
            names = world.class_names[first], world.class_names[second]
            rows.append((position, part, names[0], f"{confidence:.4f}", f"{spread:.4f}", names[1]))
    run.write_csv("predictions.csv", ["index", "split", "prediction", "confidence", "uncertainty", "runner_up"], rows)
