"""Discover classes in good features: whiten them, cluster them with sizes that follow the prior, and whiten them again.

For features that the run itself has learnt, which separate the classes less well, `clusters.cluster` does better: it
never moves the seen classes away from their labels (docs/findings.md#finding-whiten-again).

Shapes: L labelled and U unlabelled samples of D features, N of both, S seen classes, K classes (seen first, then
novel), R runs, d dimensions after whitening.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.compute.compiling import without_compiling
from openworld.ops.clusters import SINKHORN_ITERATIONS, SOFTNESS, class_means, first_centres, soft_assignment
from openworld.ops.sinkhorn import order_prior, sinkhorn
from openworld.ops.whitening import eigenvectors, within_class_whitening

ROUNDS = 20
"""Number of rounds in a run from some initial centres."""
WHITENINGS, ROUNDS_AFTER_WHITENING = 4, 2
"""How often the features are whitened again by the clusters that were found, and how often the centres move then."""
FLOOR_OF_LABELS, FLOOR_OF_CLUSTERS = 1.0, 0.3
"""Added to the covariance within classes, relative to the mean variance of a feature: when only the labelled samples
measure it, and when all samples do."""
DIMENSIONS = 256
"""Number of principal directions that are kept after whitening."""


@dataclass(frozen=True)
class Discovered:
    """A classifier that was found without training: `argmax_k <normalise((x - mean) @ projection), centres[k]>`."""

    mean_D: Tensor
    projection_Dd: Tensor
    """Whitens the classes and keeps the leading principal directions."""
    centres_Kd: Tensor
    """One unit vector for each class."""
    probabilities_UK: Tensor
    """The classes of the unlabelled samples. Their proportions follow the prior."""

    @property
    def sizes_K(self) -> Tensor:
        """The proportion of each class among the unlabelled samples."""
        return self.probabilities_UK.mean(dim=0)


def discover(
    labelled_LD: Tensor,
    labels_L: Tensor,
    unlabelled_UD: Tensor,
    prior_K: Tensor,
    source: Generator,
    trust: float = 1.0,
) -> Discovered:
    """Find the classes of the unlabelled samples: the seen ones by the labels, the novel ones by clustering.

    1. Whiten the features by their covariance within the seen classes (`within_class_whitening`).
    2. Cluster the unlabelled samples on the unit sphere. The centres of the seen classes stay at the means of their
       labelled samples (docs/findings.md#finding-first-clusters). In every round the cluster sizes follow the prior:
       otherwise a seen class takes the near samples of a novel class, and the centre of that novel class moves to a
       third class (docs/findings.md#finding-clusters-follow-prior). The best of several runs counts.
    3. Whiten again, now by the covariance within all classes, which all samples measure, and move all centres. Repeat
       (docs/findings.md#finding-whiten-again).

    If the prior is only assumed (`trust` below 1), the sizes follow it less strictly in step 3, and step 2 is made
    twice: strictly, which finds better clusters if the sizes are as assumed, and less strictly, which does if they are
    not. Of both results the one counts whose samples are more similar to their centres
    (docs/findings.md#finding-uneven).

    Args:
        labelled_LD: the labelled samples, unit vectors.
        labels_L: their class numbers, below S.
        unlabelled_UD: the unlabelled samples, unit vectors.
        prior_K: the proportion of each class among the unlabelled samples.
        source: the generator of the initial centres.
        trust: how far the cluster sizes follow the prior (`sinkhorn`).
    """
    all_ND, one_hot_LK = torch.cat([labelled_LD, unlabelled_UD]), F.one_hot(labels_L, len(prior_K)).to(labelled_LD)
    samples, num_seen = Samples(all_ND - all_ND.mean(dim=0), one_hot_LK), int(labels_L.max()) + 1
    sizes = Sizes(prior_K, num_seen, trust)
    with without_compiling():
        first_Dd = samples.whitened_by(labelled_LD, one_hot_LK, FLOOR_OF_LABELS)
        found = []
        for strictness in sorted({1.0, trust}):
            start_UK = best_run(samples, first_Dd, labels_L, Sizes(prior_K, num_seen, strictness), source)
            found.append(refined(samples, start_UK, sizes))
    probabilities_UK, projection_Dd, _ = max(found, key=lambda result: result[2])
    # A class with prior 0 needs a vector too
    classes_NK = torch.cat([one_hot_LK, probabilities_UK.clamp(min=1e-6)])
    centres_Kd = F.normalize(classes_NK.T @ samples.projected(projection_Dd))
    return Discovered(all_ND.mean(dim=0), projection_Dd, centres_Kd, probabilities_UK)


@dataclass(frozen=True)
class Samples:
    """All samples, the labelled ones first, without their mean; and the classes of the labelled ones."""

    centred_ND: Tensor
    one_hot_LK: Tensor

    def projected(self, projection_Dd: Tensor) -> Tensor:
        """Return the (N, d) whitened samples as unit vectors."""
        return F.normalize(self.centred_ND @ projection_Dd)

    def whitened_by(self, samples_MD: Tensor, classes_MK: Tensor, floor: float) -> Tensor:
        """Return the (D, d) whitening by some samples, followed by the projection on the principal directions."""
        whitening_DD = within_class_whitening(samples_MD, classes_MK, self.centred_ND, floor)
        whitened_ND = F.normalize(self.centred_ND @ whitening_DD)
        _, directions_DD = eigenvectors(whitened_ND.T @ whitened_ND)
        return whitening_DD @ directions_DD[:, -DIMENSIONS:]


@dataclass(frozen=True)
class Sizes:
    """What the cluster sizes should be: a prior, in which the novel classes may have any order, and the trust in it."""

    prior_K: Tensor
    num_seen: int
    trust: float = 1.0

    def assign(self, cosines_UK: Tensor) -> Tensor:
        """Return the (U, K) soft assignment of samples to clusters."""
        prior_K = order_prior(self.prior_K, soft_assignment(cosines_UK).mean(dim=0), self.num_seen)
        return sinkhorn(cosines_UK, prior_K, SOFTNESS, SINKHORN_ITERATIONS, trust=self.trust)


def best_run(samples: Samples, projection_Dd: Tensor, labels_L: Tensor, sizes: Sizes, source: Generator) -> Tensor:
    """Return the (U, K) classes of the unlabelled samples from the best of several runs of soft k-means.

    In each round, a novel centre becomes the mean of the samples, weighted by their probabilities, as a unit vector::

        centre[k] = normalise(sum_u p[u, k] x[u])

    The best run has the largest mean similarity of the samples with the centres that they are assigned to.
    """
    labelled_Ld, unlabelled_Ud = samples.projected(projection_Dd).tensor_split([len(labels_L)])
    seen_Sd, runs = F.normalize(class_means(labelled_Ld, labels_L)), []
    for centres_Kd in first_centres(seen_Sd, unlabelled_Ud, len(sizes.prior_K), source):
        for _ in range(ROUNDS):
            probabilities_UK = sizes.assign(unlabelled_Ud @ centres_Kd.T)
            centres_Kd = torch.cat([seen_Sd, F.normalize(probabilities_UK.T[len(seen_Sd) :] @ unlabelled_Ud)])
        cosines_UK = unlabelled_Ud @ centres_Kd.T
        probabilities_UK = sizes.assign(cosines_UK)
        runs.append((float((probabilities_UK * cosines_UK).sum(dim=1).mean()), probabilities_UK))
    return max(runs, key=lambda run: run[0])[1]


def refined(samples: Samples, probabilities_UK: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor, float]:
    """Whiten again and again by all classes, and move all centres.

    Returns:
        The (U, K) classes, the (D, d) projection, and the mean similarity of the samples with their nearest centre.
    """
    for _ in range(WHITENINGS):
        classes_NK = torch.cat([samples.one_hot_LK, probabilities_UK])
        projection_Dd = samples.whitened_by(samples.centred_ND, classes_NK, FLOOR_OF_CLUSTERS)
        whitened_Nd = samples.projected(projection_Dd)
        for _ in range(ROUNDS_AFTER_WHITENING):
            centres_Kd = F.normalize(torch.cat([samples.one_hot_LK, probabilities_UK]).T @ whitened_Nd)
            cosines_UK = whitened_Nd[len(samples.one_hot_LK) :] @ centres_Kd.T
            probabilities_UK = sizes.assign(cosines_UK)
    return probabilities_UK, projection_Dd, float(cosines_UK.amax(dim=1).mean())
