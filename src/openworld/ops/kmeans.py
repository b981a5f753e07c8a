"""k-means for many numbers of clusters. Each k starts from the clusters of the k before, and several runs are batched.

Shapes: N samples of D features, K clusters, R runs, T candidates for a new centre.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

TOLERANCE = 1e-4
"""k-means has converged when a round improves the inertia of every run by less than this proportion."""
MOST_ROUNDS = 100
"""Maximum number of Lloyd iterations for one k."""
CANDIDATES = 16
"""Number of samples among which a new centre is chosen."""


@dataclass(frozen=True)
class Clustering:
    """The clusters of R runs with the same k."""

    centres: Tensor
    """(R, K, D)."""
    labels: Tensor
    """(R, N) the number of the nearest centre of each sample."""
    inertia: Tensor
    """(R,) the sum of the squared distances to the nearest centres, which k-means minimises."""


def kmeans_sweep(features_ND: Tensor, counts: Sequence[int], source: Generator, runs: int = 3) -> Iterator[Clustering]:
    """Yield a clustering for every number of clusters, in ascending order.

    Use it to compare many numbers of clusters. The first k starts from centres that are added one by one. Every other
    k starts from the clusters of the k before and adds the missing centres. Then `lloyd` refines all centres.

    Args:
        features_ND: the samples.
        counts: the numbers of clusters, ascending, from 1 to at most N.
        source: the generator of all draws.
        runs: the number R of independent runs, which are computed together.
    """
    if list(counts) != sorted(set(counts)) or not 0 < counts[0] <= counts[-1] <= len(features_ND):
        raise ValueError(f"the numbers of clusters must ascend, from 1 or more to at most {len(features_ND)}")
    mean_D = features_ND.mean(dim=0)
    features_ND = features_ND - mean_D  # for precision: squared distances are computed from squared lengths
    first_R1 = torch.randint(len(features_ND), (runs, 1), generator=source, device=features_ND.device)
    centres_RKD = features_ND[first_R1]
    nearest_RN = squared_distances(features_ND, centres_RKD)[..., 0]
    for count in counts:
        while centres_RKD.shape[1] < count:
            new_R1D, nearest_RN = add_centres(features_ND, nearest_RN, source)
            centres_RKD = torch.cat([centres_RKD, new_R1D], dim=1)
        centres_RKD, labels_RN, nearest_RN = lloyd(features_ND, centres_RKD)
        yield Clustering(centres_RKD + mean_D, labels_RN, nearest_RN.sum(dim=1))


def add_centres(features_ND: Tensor, nearest_RN: Tensor, source: Generator) -> tuple[Tensor, Tensor]:
    """Choose one more centre for each run, as greedy k-means++ does, and move it to the mean of its samples.

    Candidates are sampled with probabilities proportional to their squared distances to the nearest centre. The best
    candidate is the one that reduces the sum of these distances most. The new centre is the mean of the samples that
    are nearer to this candidate than to any old centre: with many features, a single sample is far from all others.

    Args:
        features_ND: the samples.
        nearest_RN: the squared distance of each sample to its nearest centre so far.
        source: the generator of the draws.

    Returns:
        The new centres (R, 1, D), and the squared distances (R, N) to the nearest centre, the new one included.
    """
    weights_RN = nearest_RN.clamp(min=1e-30)  # there may be fewer different samples than clusters
    candidates_RT = torch.multinomial(weights_RN, CANDIDATES, replacement=True, generator=source)
    distances_RNT = squared_distances(features_ND, features_ND[candidates_RT])
    best_R = torch.minimum(nearest_RN[..., None], distances_RNT).sum(dim=1).argmin(dim=1)
    runs_R = torch.arange(len(best_R), device=best_R.device)
    is_nearer_RN = (distances_RNT[runs_R, :, best_R] <= nearest_RN).float()
    means_RD = is_nearer_RN @ features_ND / is_nearer_RN.sum(dim=1, keepdim=True).clamp(min=1)
    return means_RD[:, None], torch.minimum(nearest_RN, squared_distances(features_ND, means_RD[:, None])[..., 0])


def lloyd(features_ND: Tensor, centres_RKD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run Lloyd's algorithm until the inertia of every run converges (`TOLERANCE`), for at most `MOST_ROUNDS` rounds.

    Returns:
        The centres (R, K, D), the labels (R, N), and the squared distances (R, N) to the nearest centre.
    """
    before_R = torch.full((len(centres_RKD),), torch.inf, device=features_ND.device)
    for rounds_left in reversed(range(MOST_ROUNDS)):
        nearest_RN, labels_RN = squared_distances(features_ND, centres_RKD).min(dim=2)
        inertia_R = nearest_RN.sum(dim=1)
        if not rounds_left or bool((inertia_R >= (1 - TOLERANCE) * before_R).all()):
            break
        before_R = inertia_R
        centres_RKD = means_of_clusters(features_ND, centres_RKD, labels_RN, nearest_RN)
    return centres_RKD, labels_RN, nearest_RN


def squared_distances(features_ND: Tensor, centres_RKD: Tensor) -> Tensor:
    """Return (R, N, K) squared distances: `||x||^2 + ||c||^2 - 2 <x, c>`, by one matrix product for all runs."""
    runs, count, _ = centres_RKD.shape
    flat = centres_RKD.flatten(0, 1)
    lengths_N1 = features_ND.square().sum(dim=1, keepdim=True)
    distances = torch.addmm(lengths_N1 + flat.square().sum(dim=1), features_ND, flat.T, alpha=-2)
    return distances.clamp_(min=0).unflatten(1, (runs, count)).transpose(0, 1)


def means_of_clusters(features_ND: Tensor, centres_RKD: Tensor, labels_RN: Tensor, nearest_RN: Tensor) -> Tensor:
    """Return the (R, K, D) means of the clusters. An empty cluster moves to the sample farthest from its centre."""
    runs, count, _ = centres_RKD.shape
    rows_RN = labels_RN + count * torch.arange(runs, device=labels_RN.device)[:, None]
    sums, sizes = torch.zeros_like(centres_RKD).flatten(0, 1), torch.bincount(rows_RN.flatten(), minlength=runs * count)
    for rows_N in rows_RN:
        sums.index_add_(0, rows_N, features_ND)
    means_RKD = (sums / sizes.clamp(min=1)[:, None]).unflatten(0, (runs, count))
    is_empty_RK = (sizes == 0).unflatten(0, (runs, count))
    farthest_R1 = nearest_RN.argmax(dim=1, keepdim=True)
    return torch.where(is_empty_RK[..., None], features_ND[farthest_R1], means_RKD)
