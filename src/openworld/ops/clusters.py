"""Classes from features: clusters around centres, of which labels tell where the seen classes' own are.

Shapes: L labelled and U unlabelled samples of D features, S seen classes, K classes (seen first, then novel), R runs.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.compute.compiling import without_compiling
from openworld.ops.kmeans import new_centres, squared_distances
from openworld.ops.sinkhorn import order_prior, sinkhorn

RUNS = 10
"""From different first centres; the best counts."""
ROUNDS = 30
SOFTNESS = 0.05
"""The temperature of a sample's shares in the clusters: shares of 0 and 1 get stuck more often."""
SINKHORN_ITERATIONS = 20
"""With five, sizes miss the prior by so much that centres stay where they were."""


def cluster(labelled_LD: Tensor, labels_L: Tensor, unlabelled_UD: Tensor, prior_K: Tensor, source: Generator) -> Tensor:
    """(U, K) the shares of each unlabelled sample in the classes, the seen ones first. Samples are unit vectors.

    Soft k-means on the sphere, with two differences (docs/log.md says what each is worth): the seen classes' centres
    stay where their labelled samples are; and in the end the clusters' sizes follow the prior, or a seen class would
    take what is near it of a novel one, whose centre would move off to a third.
    """
    seen_SD = F.normalize(class_means(labelled_LD, labels_L))
    starts_RKD = first_centres(seen_SD, unlabelled_UD, len(prior_K), source)
    settled_RKD = [settle_novel(unlabelled_UD, centres_KD, len(seen_SD), by_nearness) for centres_KD in starts_RKD]
    best_KD = max(settled_RKD, key=lambda centres_KD: closeness(unlabelled_UD @ centres_KD.T))
    sizes_K = by_nearness(unlabelled_UD @ best_KD.T).mean(dim=0)
    by_prior = functools.partial(
        sinkhorn, prior_K=order_prior(prior_K, sizes_K, len(seen_SD)), epsilon=SOFTNESS, iterations=SINKHORN_ITERATIONS
    )
    with without_compiling():
        return by_prior(unlabelled_UD @ settle_novel(unlabelled_UD, best_KD, len(seen_SD), by_prior).T)


def by_nearness(cosines_UK: Tensor) -> Tensor:
    """Shares of samples in clusters."""
    return (cosines_UK / SOFTNESS).softmax(dim=1)


def settle_novel(
    unlabelled_UD: Tensor, centres_KD: Tensor, num_seen: int, share_out: Callable[[Tensor], Tensor]
) -> Tensor:
    """(K, D) unit vectors: the novel centres have moved to the means of their shares of the samples."""
    for _ in range(ROUNDS):
        shares_UK = share_out(unlabelled_UD @ centres_KD.T)
        novel_ND = F.normalize(shares_UK.T[num_seen:] @ unlabelled_UD)
        centres_KD = torch.cat([centres_KD[:num_seen], novel_ND])
    return centres_KD


def closeness(cosines_UK: Tensor) -> float:
    """How near samples are to the nearest centre, on average: what k-means makes large."""
    return float(cosines_UK.amax(dim=1).mean())


def whitening(labelled_LD: Tensor, labels_L: Tensor, unlabelled_UD: Tensor) -> tuple[Tensor, Tensor]:
    """(D,) the middle of the samples, and (D, D) what makes those of a seen class differ alike in all directions.

    What tells samples of one seen class apart will hardly tell novel classes apart. Few labelled samples do not span
    all directions: their spread is mixed with an even one, as large as that of all samples.
    """
    all_ND = torch.cat([labelled_LD, unlabelled_UD])
    middle_D = all_ND.mean(dim=0)
    spread_LD = labelled_LD - class_means(labelled_LD, labels_L)[labels_L]
    even = all_ND.var(dim=0).mean().clamp(min=1e-12)
    covariance_DD = spread_LD.T @ spread_LD / len(spread_LD) + even * torch.eye(len(middle_D), device=even.device)
    variances_D, directions_DD = torch.linalg.eigh(covariance_DD)
    return middle_D, directions_DD * variances_D.rsqrt() @ directions_DD.T


def whitened(samples_ND: Tensor, middle_D: Tensor, whitening_DD: Tensor) -> Tensor:
    """(N, D) unit vectors."""
    return F.normalize((samples_ND - middle_D) @ whitening_DD)


def class_means(features_LD: Tensor, labels_L: Tensor) -> Tensor:
    """(S, D).

    >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]))
    tensor([[2.],
            [5.]])
    """
    shares_LS = F.one_hot(labels_L).to(features_LD)
    return (shares_LS / shares_LS.sum(dim=0)).T @ features_LD


def first_centres(seen_SD: Tensor, unlabelled_UD: Tensor, count: int, source: Generator) -> Tensor:
    """(R, K, D) unit vectors: the seen classes' centres, and one by one those of samples that are far from all."""
    centres_RKD = seen_SD.expand(RUNS, -1, -1)
    nearest_RU = squared_distances(unlabelled_UD, seen_SD[None]).amin(dim=2).expand(RUNS, -1)
    while centres_RKD.shape[1] < count:
        new_R1D, nearest_RU = new_centres(unlabelled_UD, nearest_RU, source)
        centres_RKD = torch.cat([centres_RKD, new_R1D], dim=1)
    return F.normalize(centres_RKD, dim=2)
