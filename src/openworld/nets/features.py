"""Extract the features before the head, and cluster them to initialise a head.

Shapes: N samples of D features, L labelled and U unlabelled ones, K classes.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.data.augment import Family
from openworld.data.problem import TrainingSet
from openworld.data.samples import Samples
from openworld.nets.network import Network
from openworld.ops.clusters import cluster, whitened, whitening


@torch.no_grad()
def extract(network: Network, samples: Samples, family: Family) -> Tensor:
    """Return the (N, D) features of samples as unit vectors, without augmentation.

    The network must be in evaluation mode.
    """
    return torch.cat([F.normalize(network.features(family.plain(chunk)).float()) for chunk in samples.chunks()])


@torch.no_grad()
def clustered_head(network: Network, data: TrainingSet, source: Generator) -> Tensor:
    """Return the (K, D) weights of a cosine head that separates the classes, as unit vectors.

    The seen classes come from the labels, the novel classes from clusters of the features (`ops.clusters.cluster`). The
    network must be in evaluation mode.
    """
    labelled_LD, unlabelled_UD = (extract(network, part, data.family) for part in (data.labelled, data.unlabelled))
    mean_D, whitening_DD = whitening(labelled_LD, data.labels, unlabelled_UD)
    labelled_LD, unlabelled_UD = (whitened(part, mean_D, whitening_DD) for part in (labelled_LD, unlabelled_UD))
    one_hot_LK = F.one_hot(data.labels, data.num_classes).to(labelled_LD)
    probabilities_UK = cluster(labelled_LD, data.labels, unlabelled_UD, data.prior, source)
    probabilities_UK = probabilities_UK.clamp(min=1e-6)  # a class with prior 0 needs a vector too
    means_KD = one_hot_LK.T @ labelled_LD + probabilities_UK.T @ unlabelled_UD
    # The head sees features that are not whitened and not centred. Multiplying by the whitening matrix again gives
    # discriminants for features that are not whitened. Removing the direction of the mean keeps the mean from favouring
    # a class.
    rows_KD = means_KD @ whitening_DD
    common_D = F.normalize(mean_D, dim=0)
    return F.normalize(rows_KD - (rows_KD @ common_D)[:, None] * common_D)
