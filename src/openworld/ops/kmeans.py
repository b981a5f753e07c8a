"""k-means for many k in a row: each k starts from the clusters of the one before, and several runs go side by side.

Shapes: N samples of D features, K clusters, R runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

TOLERANCE = 1e-4
"""Clusters are settled when a round improves the inertia of every run by less than this share."""
MOST_ROUNDS = 100
CANDIDATES = 16
"""Samples among which a new centre is chosen."""


@dataclass(frozen=True)
class Clustering:
    """The clusters of R runs with the same k."""

    centres: Tensor
    """(R, K, D)."""
    labels: Tensor
    """(R, N): the nearest centre of each sample."""
    inertia: Tensor
    """(R,): the sum of the squared distances to the nearest centres, which k-means makes small."""


def kmeans_sweep(features_ND: Tensor, counts: Sequence[int], source: Generator, runs: int = 3) -> Iterator[Clustering]:
    """Clusterings for every number of clusters in ascending order.

    The first k starts from centres found one by one, each other k from the clusters of the one before it and as many
    new centres as it has more.
    """
    if list(counts) != sorted(set(counts)) or not 0 < counts[0] <= counts[-1] <= len(features_ND):
        raise ValueError(f"numbers of clusters must ascend from 1 to {len(features_ND)} at most")
    middle_D = features_ND.mean(dim=0)
    features_ND = features_ND - middle_D  # for precision: squared distances are made from squared lengths
    first_R1 = torch.randint(len(features_ND), (runs, 1), generator=source, device=features_ND.device)
    centres_RKD = features_ND[first_R1]
    nearest_RN = squared_distances(features_ND, centres_RKD)[..., 0]
    for count in counts:
        while centres_RKD.shape[1] < count:
            new_R1D, nearest_RN = new_centres(features_ND, nearest_RN, source)
            centres_RKD = torch.cat([centres_RKD, new_R1D], dim=1)
        centres_RKD, labels_RN, nearest_RN = settle(features_ND, centres_RKD)
        yield Clustering(centres_RKD + middle_D, labels_RN, nearest_RN.sum(dim=1))


def new_centres(features_ND: Tensor, nearest_RN: Tensor, source: Generator) -> tuple[Tensor, Tensor]:
    """One more centre for each run, and the squared distances to the nearest centre with it.

    Of samples drawn by their squared distances, the one that shortens them most; then the mean of those that it draws
    to itself, since a single sample lies far from all others where there are many features.
    """
    weights_RN = nearest_RN.clamp(min=1e-30)  # a set may have fewer different samples than clusters
    candidates_RT = torch.multinomial(weights_RN, CANDIDATES, replacement=True, generator=source)
    distances_RNT = squared_distances(features_ND, features_ND[candidates_RT])
    best_R = torch.minimum(nearest_RN[..., None], distances_RNT).sum(dim=1).argmin(dim=1)
    runs_R = torch.arange(len(best_R), device=best_R.device)
    is_drawn_RN = (distances_RNT[runs_R, :, best_R] <= nearest_RN).float()
    means_RD = is_drawn_RN @ features_ND / is_drawn_RN.sum(dim=1, keepdim=True).clamp(min=1)
    return means_RD[:, None], torch.minimum(nearest_RN, squared_distances(features_ND, means_RD[:, None])[..., 0])


def settle(features_ND: Tensor, centres_RKD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lloyd's rounds until hardly anything changes: centres, labels, and squared distances to the nearest centre."""
    before_R = torch.full((len(centres_RKD),), torch.inf, device=features_ND.device)
    for left in reversed(range(MOST_ROUNDS)):
        nearest_RN, labels_RN = squared_distances(features_ND, centres_RKD).min(dim=2)
        inertia_R = nearest_RN.sum(dim=1)
        if not left or bool((inertia_R >= (1 - TOLERANCE) * before_R).all()):
            break
        before_R = inertia_R
        centres_RKD = means_of_clusters(features_ND, centres_RKD, labels_RN, nearest_RN)
    return centres_RKD, labels_RN, nearest_RN


def squared_distances(features_ND: Tensor, centres_RKD: Tensor) -> Tensor:
    """(R, N, K), by one matrix product for all runs."""
    runs, count, _ = centres_RKD.shape
    flat = centres_RKD.flatten(0, 1)
    lengths_N1 = features_ND.square().sum(dim=1, keepdim=True)
    distances = torch.addmm(lengths_N1 + flat.square().sum(dim=1), features_ND, flat.T, alpha=-2)
    return distances.clamp_(min=0).unflatten(1, (runs, count)).transpose(0, 1)


def means_of_clusters(features_ND: Tensor, centres_RKD: Tensor, labels_RN: Tensor, nearest_RN: Tensor) -> Tensor:
    """New centres; a cluster that nobody belongs to moves to the sample that is farthest from its own centre."""
    runs, count, _ = centres_RKD.shape
    rows_RN = labels_RN + count * torch.arange(runs, device=labels_RN.device)[:, None]
    sums, sizes = torch.zeros_like(centres_RKD).flatten(0, 1), torch.bincount(rows_RN.flatten(), minlength=runs * count)
    for rows_N in rows_RN:
        sums.index_add_(0, rows_N, features_ND)
    means_RKD = (sums / sizes.clamp(min=1)[:, None]).unflatten(0, (runs, count))
    is_empty_RK = (sizes == 0).unflatten(0, (runs, count))
    farthest_R1 = nearest_RN.argmax(dim=1, keepdim=True)
    return torch.where(is_empty_RK[..., None], features_ND[farthest_R1], means_RKD)
