"""Extract the features before the head, and find the classes in them, to initialise a head.

Shapes: N samples of D features, L labelled and U unlabelled ones, K classes, d features after whitening.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.data.augment import Family
from openworld.data.problem import TrainingSet
from openworld.data.samples import Samples
from openworld.nets.bodies import Adapter
from openworld.nets.network import Network
from openworld.ops.clusters import cluster, whitened, whitening
from openworld.ops.discovery import discover

TRUST_OF_CLUSTERS = 0.3
"""How far clusters of features that the run has learnt follow a prior that training will estimate
(docs/findings.md#finding-estimated-prior)."""


@torch.no_grad()
def extract(network: Network, samples: Samples, family: Family) -> Tensor:
    """Return the (N, D) features of samples as unit vectors, without augmentation.

    The network must be in evaluation mode.
    """
    return torch.cat([unit_features(network, chunk, family) for chunk in samples.chunks()])


@torch.no_grad()
def unit_features(network: Network, samples: Tensor, family: Family) -> Tensor:
    """Return the (B, D) features of some samples as unit vectors, without augmentation."""
    return F.normalize(network.features(family.plain(samples)).float())


def clustered_head(network: Network, data: TrainingSet, source: Generator) -> Tensor:
    """Return the (K, D) weights of a cosine head that separates the classes, as unit vectors.

    The seen classes come from the labels, the novel classes from clusters of the features (`ops.clusters.cluster`). The
    network must be in evaluation mode.
    """
    return head_and_sizes(network, data, source)[0]


@torch.no_grad()
def head_and_sizes(network: Network, data: TrainingSet, source: Generator) -> tuple[Tensor, Tensor]:
    """Return the weights of `clustered_head`, and the (K,) proportions of the clusters."""
    labelled_LD, unlabelled_UD = (extract(network, part, data.family) for part in (data.labelled, data.unlabelled))
    mean_D, whitening_DD = whitening(labelled_LD, data.labels, unlabelled_UD)
    labelled_LD, unlabelled_UD = (whitened(part, mean_D, whitening_DD) for part in (labelled_LD, unlabelled_UD))
    one_hot_LK = F.one_hot(data.labels, data.num_classes).to(labelled_LD)
    trust = TRUST_OF_CLUSTERS if data.estimates_prior else 1.0
    probabilities_UK = cluster(labelled_LD, data.labels, unlabelled_UD, data.prior, source, trust)
    weights_UK = probabilities_UK.clamp(min=1e-6)  # a class with prior 0 needs a vector too
    means_KD = one_hot_LK.T @ labelled_LD + weights_UK.T @ unlabelled_UD
    # The head sees features that are not whitened and not centred. Multiplying by the whitening matrix again gives
    # discriminants for features that are not whitened. Removing the direction of the mean keeps the mean from favouring
    # a class.
    rows_KD = means_KD @ whitening_DD
    common_D = F.normalize(mean_D, dim=0)
    return F.normalize(rows_KD - (rows_KD @ common_D)[:, None] * common_D), probabilities_UK.mean(dim=0)


@torch.no_grad()
def begin_with_clusters(network: Network, data: TrainingSet, source: Generator) -> tuple[Tensor, Tensor | None]:
    """Set the adapter of the network to the whitening of the classes that are discovered in its inputs.

    Return the (K, d) weights of a cosine head, and the (K,) proportions of the classes if training should use them in
    place of the prior. Without an adapter, return those of `head_and_sizes`. The network must be in evaluation mode.
    """
    if not isinstance(network.body, Adapter):
        centres_KD, sizes_K = head_and_sizes(network, data, source)
        return centres_KD, sizes_K if data.estimates_prior else None
    labelled_LD, unlabelled_UD = (inputs_of_adapter(network, part, data) for part in (data.labelled, data.unlabelled))
    found = discover(labelled_LD, data.labels, unlabelled_UD, data.prior, source, data.trust)
    network.body.begin(found.mean_D, found.projection_Dd)
    return found.centres_Kd, found.sizes_K if data.trust < 1 else None


def inputs_of_adapter(network: Network, samples: Samples, data: TrainingSet) -> Tensor:
    """Return the (N, D) unit vectors that the adapter maps, without augmentation."""
    plain = (data.family.plain(chunk) for chunk in samples.chunks())
    return torch.cat([network.body.inputs(network.normalised(chunk)) for chunk in plain])
