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
from openworld.ops.clusters import find_clusters


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


@torch.no_grad()
def clustered_head(network: Network, data: TrainingSet, source: Generator) -> tuple[Tensor, Tensor]:
    """Return the (K, D) weights of a cosine head that separates the classes, as unit vectors, and the cluster sizes.

    The seen classes come from the labels, the novel classes from clusters of the features. The network must be in
    evaluation mode.
    """
    labelled_LD, unlabelled_UD = (extract(network, part, data.family) for part in (data.labelled, data.unlabelled))
    found = find_clusters(labelled_LD, data.labels, unlabelled_UD, data.prior, source, data.trust)
    # The head sees features that are not whitened and not centred. Multiplying by the whitening matrix again gives
    # discriminants for features that are not whitened. Removing the direction of the mean keeps the mean from favouring
    # a class.
    rows_KD = found.centres_Kd @ found.projection_Dd.T
    common_D = F.normalize(found.mean_D, dim=0)
    return F.normalize(rows_KD - (rows_KD @ common_D)[:, None] * common_D), found.sizes_K


@torch.no_grad()
def begin_with_clusters(network: Network, data: TrainingSet, source: Generator) -> tuple[Tensor, Tensor]:
    """Set the adapter of the network to the whitening of the classes. Return the weights of a cosine head, and sizes.

    Without an adapter, return what `clustered_head` returns. The network must be in evaluation mode.
    """
    if not isinstance(network.body, Adapter):
        return clustered_head(network, data, source)
    labelled_LD, unlabelled_UD = (inputs_of_adapter(network, part, data) for part in (data.labelled, data.unlabelled))
    found = find_clusters(labelled_LD, data.labels, unlabelled_UD, data.prior, source, data.trust)
    network.body.begin(found.mean_D, found.projection_Dd)
    return found.centres_Kd, found.sizes_K


def inputs_of_adapter(network: Network, samples: Samples, data: TrainingSet) -> Tensor:
    """Return the (N, D) unit vectors that the adapter maps, without augmentation."""
    plain = (data.family.plain(chunk) for chunk in samples.chunks())
    return torch.cat([network.body.inputs(network.normalised(chunk)) for chunk in plain])
