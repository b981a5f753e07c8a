"""Evaluation of a network: predictions for samples, and accuracies if their true classes are known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openworld.compute.runtime import Runtime
from openworld.core.config import NCD, Config
from openworld.core.errors import UserError, named
from openworld.data.problem import OpenWorld, TrainingSet, Truth
from openworld.nets.building import inference_network
from openworld.nets.features import extract
from openworld.nets.network import Network
from openworld.ops.metrics import (
    BY_COUNTS,
    TASK_AWARE,
    Accuracy,
    accuracy,
    adjusted_rand_index,
    confusion_matrix,
    normalised_mutual_information,
    novel_as_seen,
    task_aware_predictions,
)
from openworld.ops.probes import linear_probe_accuracy, neighbours_accuracy
from openworld.runs.checkpoint import Checkpoint
from openworld.runs.folder import RunFolder
from openworld.runs.world import backbone_of, open_world


@torch.no_grad()
def predict_logits(network: Network, truth: Truth, data: TrainingSet) -> Tensor:
    """Return (N, K) logits for samples without augmentation. The network must be in evaluation mode."""
    return torch.cat([network(data.family.plain(chunk)) for chunk in truth.samples.chunks()])


def predict_and_count(network: Network, truth: Truth, data: TrainingSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the true classes, (N, K) logits and confusion matrix of the samples whose class is known."""
    known = truth.labels >= 0
    labels = truth.labels[known]
    logits = predict_logits(network, truth, data).cpu().numpy()[known]
    num_classes = max(int(labels.max()) + 1, data.num_seen)
    return labels, logits, confusion_matrix(labels, logits.argmax(axis=1), num_classes, logits.shape[1])


def progress_scores(network: Network, truth: Truth, data: TrainingSet) -> dict[str, float | None]:
    """Return the strict accuracies, and two values that explain novel accuracy, to be logged during training.

    `novel_as_seen` is the proportion of novel samples that are predicted as seen classes. `novel_only` is the accuracy
    that novel samples would have if only novel outputs could be predicted.
    """
    num_seen = data.num_seen
    labels, logits, counts = predict_and_count(network, truth, data)
    scores = accuracy(counts, num_seen, "trssl")
    novel_only = task_aware(labels, logits, num_seen).novel if logits.shape[1] > num_seen else None
    return {
        "seen": scores.seen,
        "novel": scores.novel,
        "all": scores.all,
        "novel_as_seen": novel_as_seen(counts, num_seen),
        "novel_only": novel_only,
    }


def task_aware(labels: np.ndarray, logits: np.ndarray, num_seen: int) -> Accuracy:
    """Return the accuracies if it is known of each sample whether its class is seen or novel."""
    predicted = task_aware_predictions(logits, labels >= num_seen, num_seen)
    num_classes = max(int(labels.max()) + 1, num_seen)
    return accuracy(confusion_matrix(labels, predicted, num_classes, logits.shape[1]), num_seen, "trssl")


def evaluate_part(network: Network, world: OpenWorld, part: str | None, task: str) -> dict[str, Any]:
    """Return the accuracies on a part, `test` or `unlabelled`, under every protocol, and its NMI and ARI.

    The protocol `task-aware` is for novel class discovery (`--task ncd`).
    """
    if part is None:
        return {"part": None, "protocols": {}, "nmi": None, "ari": None}
    num_seen = world.training.num_seen
    labels, logits, counts = predict_and_count(network, world.truths[part], world.training)
    scores = scores_of_counts(counts, num_seen)
    if task == NCD:
        scores["protocols"][TASK_AWARE] = vars(task_aware(labels, logits, num_seen))
    return {"part": part, **scores}


def scores_of_counts(counts: np.ndarray, num_seen: int) -> dict[str, Any]:
    """Return all scores that are computed from a confusion matrix."""
    return {
        "protocols": {protocol: vars(accuracy(counts, num_seen, protocol)) for protocol in BY_COUNTS},
        "nmi": normalised_mutual_information(counts),
        "ari": adjusted_rand_index(counts),
    }


def probe_features(network: Network, world: OpenWorld) -> dict[str, float] | None:
    """Return the k-nearest-neighbour and linear-probe accuracies of the features on the test part.

    The probes use the true classes of all training samples. Return None if there is no test part, or if a true class
    is unknown.
    """
    data, train = world.training, world.truths["unlabelled"]
    if "test" not in world.truths or (train.labels < 0).any() or (world.truths["test"].labels < 0).any():
        return None
    known = torch.cat([extract(network, part, data.family) for part in (data.labelled, data.unlabelled)])
    labels = torch.cat([data.labels, torch.from_numpy(train.labels).to(data.device)])
    test = extract(network, world.truths["test"].samples, data.family)
    truth = torch.from_numpy(world.truths["test"].labels).to(data.device)
    return {
        "neighbours": neighbours_accuracy(known, labels, test, truth),
        "linear": linear_probe_accuracy(known, labels, test, truth),
    }


def evaluate_run(run: RunFolder, part: str | None, runtime: Runtime, warn: Callable[[str], None]) -> dict[str, Any]:
    """Evaluate the averaged model of a run's newest checkpoint."""
    config = run.config()
    world = open_world(config, runtime, run)
    part = part or world.evaluated_part
    if part and part not in world.truths:
        raise UserError(f"{config.data} has no {part} part; leave {named('part')} out")
    if part is None or not world.truths[part].is_known:
        samples = f"the {part} part" if part else "all samples"
        raise UserError(
            f"{config.data}: accuracy cannot be measured, because the true classes of {samples} are unknown"
        )
    network, step = load_average(run, config, runtime.device, warn)
    return {"run": str(run.path), "step": step, **evaluate_part(network, world, part, config.problem.task)}


def find_checkpoint(run: RunFolder, warn: Callable[[str], None]) -> Checkpoint:
    """Return the newest undamaged checkpoint of a run, or raise a UserError if it has none."""
    saved = run.newest_checkpoint(warn)
    if saved is None:
        advice = "train the run again" if run.summary() else f"continue with: {run.resume_command}"
        raise UserError(f"{run.path} has no undamaged checkpoint; {advice}")
    return saved


def load_average(
    run: RunFolder, config: Config, device: torch.device, warn: Callable[[str], None]
) -> tuple[Network, int]:
    """Return the averaged model of a run's newest checkpoint, for inference, and its step. This needs no data."""
    saved = find_checkpoint(run, warn)
    if saved.step < config.training.steps:
        state = "lacks its last checkpoint" if run.summary() else "is not finished"
        warn(f"{run.path} {state}; using step {saved.step} of {config.training.steps}")
    split, facts = run.split_and_facts()
    shape, class_names = facts.get("sample_shape"), facts.get("class_names")
    if shape is None or class_names is None:
        missing = "the sample shape or the class names"
        raise UserError(f"{run.path}: split.json lacks {missing}; train the run again with this version")
    weights, backbone = saved.tensors("average"), backbone_of(config, run)
    try:
        network = inference_network(config, tuple(shape), split.num_seen, len(class_names), weights, device, backbone)
    except (RuntimeError, KeyError):
        mismatch = "split.json, config.toml and the checkpoint do not match"
        raise UserError(f"{run.path} is damaged: {mismatch}; restore the files or train the run again") from None
    return network, saved.step
