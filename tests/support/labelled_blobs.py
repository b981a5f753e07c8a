"""Blobs of features with a known number of classes, and labels for some samples."""

import torch
from torch import Tensor

from openworld.ops.rng import generator

APART, OVERLAPPING = 8.0, 4.0


def blobs(classes: int, size: int = 200, distance: float = APART, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return features and classes. All centres have the same distance from each other."""
    truth = torch.arange(classes * size) % classes
    noise = torch.randn(len(truth), 32, generator=generator(seed, "blobs"))
    return distance * torch.eye(classes, 32)[truth] + noise, truth


def with_labels(
    features: Tensor, truth: Tensor, num_seen: int, each: int | list[int], seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return features, those of labelled samples first, and labels for `each` random samples of every seen class."""
    order = torch.randperm(len(truth), generator=generator(seed, "labels"))
    counts = [each] * num_seen if isinstance(each, int) else each
    labelled = torch.cat([order[truth[order] == label][:count] for label, count in enumerate(counts)])
    others = order[~torch.isin(order, labelled)]
    return features[torch.cat([labelled, others])], truth[labelled]
