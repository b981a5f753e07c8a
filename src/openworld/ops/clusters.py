"""Find classes in features: soft k-means in which the labelled samples fix the centres of the seen classes.

Shapes: L labelled and U unlabelled samples of D features, S seen classes, K classes (seen first, then novel), R runs.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.compute.compiling import without_compiling
from openworld.ops.kmeans import add_centres, squared_distances
from openworld.ops.sinkhorn import order_prior, sinkhorn
from openworld.ops.whitening import within_class_whitening

RUNS = 10
"""Number of runs from different initial centres. The best run is used."""
ROUNDS = 30
"""Number of updates of the novel centres in a run."""
SOFTNESS = 0.05
"""Temperature of the soft assignment of samples to clusters. Hard assignments get stuck more often."""
SINKHORN_ITERATIONS = 20
"""Number of Sinkhorn iterations. After only five, the cluster sizes differ so much from the prior that the centres do
not move."""


def cluster(
    labelled_LD: Tensor,
    labels_L: Tensor,
    unlabelled_UD: Tensor,
    prior_K: Tensor,
    source: Generator,
    trust: float = 1.0,
) -> Tensor:
    """Return the (U, K) class probabilities of the unlabelled samples, found by clustering, seen classes first.

    This is soft k-means on the unit sphere, with two differences:

    - The centres of the seen classes stay at the means of their labelled samples
      (docs/findings.md#finding-first-clusters).
    - At the end, the cluster sizes follow the prior. Without this, a seen class would take the near samples of a novel
      class, and the centre of that novel class would move to a third class
      (docs/findings.md#finding-clusters-follow-prior).

    Use it to initialise the head when the features are good already.

    Args:
        labelled_LD: the labelled samples, unit vectors.
        labels_L: their class numbers, below S.
        unlabelled_UD: the unlabelled samples, unit vectors.
        prior_K: the proportion of each class among the unlabelled samples.
        source: the generator of the initial centres.
        trust: how far the cluster sizes follow the prior (`sinkhorn`).
    """
    seen_SD = F.normalize(class_means(labelled_LD, labels_L))
    starts_RKD = first_centres(seen_SD, unlabelled_UD, len(prior_K), source)
    runs_RKD = [
        update_novel_centres(unlabelled_UD, centres_KD, len(seen_SD), soft_assignment) for centres_KD in starts_RKD
    ]
    best_KD = max(runs_RKD, key=lambda centres_KD: mean_similarity(unlabelled_UD @ centres_KD.T))
    sizes_K = soft_assignment(unlabelled_UD @ best_KD.T).mean(dim=0)
    ordered_K, iterations = order_prior(prior_K, sizes_K, len(seen_SD)), SINKHORN_ITERATIONS
    assign_by_prior = functools.partial(
        sinkhorn, prior_K=ordered_K, epsilon=SOFTNESS, iterations=iterations, trust=trust
    )
    with without_compiling():
        centres_KD = update_novel_centres(unlabelled_UD, best_KD, len(seen_SD), assign_by_prior)
        return assign_by_prior(unlabelled_UD @ centres_KD.T)


def soft_assignment(cosines_UK: Tensor) -> Tensor:
    """Return the (U, K) probabilities of the clusters for each sample: `softmax(cosines / SOFTNESS)`."""
    return (cosines_UK / SOFTNESS).softmax(dim=1)


def update_novel_centres(
    unlabelled_UD: Tensor, centres_KD: Tensor, num_seen: int, assign: Callable[[Tensor], Tensor]
) -> Tensor:
    """Run `ROUNDS` rounds of soft k-means in which only the novel centres move. Return the (K, D) centres.

    In each round, a novel centre becomes the mean of the samples, weighted by their probabilities, as a unit vector::

        centre[k] = normalise(sum_u assign(cosines)[u, k] x[u])
    """
    for _ in range(ROUNDS):
        probabilities_UK = assign(unlabelled_UD @ centres_KD.T)
        novel_ND = F.normalize(probabilities_UK.T[num_seen:] @ unlabelled_UD)
        centres_KD = torch.cat([centres_KD[:num_seen], novel_ND])
    return centres_KD


def mean_similarity(cosines_UK: Tensor) -> float:
    """Return the mean, over samples, of the cosine with the nearest centre. k-means on the sphere maximises it."""
    return float(cosines_UK.amax(dim=1).mean())


def whitening(labelled_LD: Tensor, labels_L: Tensor, unlabelled_UD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (D,) mean of all samples, and the (D, D) matrix that whitens the seen classes."""
    all_ND = torch.cat([labelled_LD, unlabelled_UD])
    one_hot_LS = F.one_hot(labels_L).to(labelled_LD)
    return all_ND.mean(dim=0), within_class_whitening(labelled_LD, one_hot_LS, all_ND, floor=1.0)


def whitened(samples_ND: Tensor, mean_D: Tensor, whitening_DD: Tensor) -> Tensor:
    """Return the (N, D) whitened samples as unit vectors, with the mean and the matrix from `whitening`."""
    return F.normalize((samples_ND - mean_D) @ whitening_DD)


def class_means(features_LD: Tensor, labels_L: Tensor) -> Tensor:
    """Return the (S, D) mean of the samples of each class.

    >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]))
    tensor([[2.],
            [5.]])
    """
    one_hot_LS = F.one_hot(labels_L).to(features_LD)
    return (one_hot_LS / one_hot_LS.sum(dim=0)).T @ features_LD


def first_centres(seen_SD: Tensor, unlabelled_UD: Tensor, count: int, source: Generator) -> Tensor:
    """Return (R, K, D) initial centres: the seen ones, then novel ones that `add_centres` places far from them."""
    centres_RKD = seen_SD.expand(RUNS, -1, -1)
    nearest_RU = squared_distances(unlabelled_UD, seen_SD[None]).amin(dim=2).expand(RUNS, -1)
    while centres_RKD.shape[1] < count:
        new_R1D, nearest_RU = add_centres(unlabelled_UD, nearest_RU, source)
        centres_RKD = torch.cat([centres_RKD, new_R1D], dim=1)
    return F.normalize(centres_RKD, dim=2)
