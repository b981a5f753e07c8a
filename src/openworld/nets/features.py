"""What a network makes of samples before its head, and what these features are worth.

Shapes: N samples of D features, M samples to be judged by them, K classes.
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
    """(N, D) unit vectors, without augmentation; of a network in evaluation mode."""
    return torch.cat([F.normalize(network.features(family.plain(chunk)).float()) for chunk in samples.chunks()])


@torch.no_grad()
def clustered_head(network: Network, data: TrainingSet, source: Generator) -> Tensor:
    """(K, D) unit vectors: what tells the classes from each other, by labels and by clusters.

    Of a network in evaluation mode.
    """
    labelled_LD, unlabelled_UD = (extract(network, part, data.family) for part in (data.labelled, data.unlabelled))
    middle_D, whitening_DD = whitening(labelled_LD, data.labels, unlabelled_UD)
    labelled_LD, unlabelled_UD = (whitened(part, middle_D, whitening_DD) for part in (labelled_LD, unlabelled_UD))
    known_LK = F.one_hot(data.labels, data.num_classes).to(labelled_LD)
    shares_UK = cluster(labelled_LD, data.labels, unlabelled_UD, data.prior, source)
    shares_UK = shares_UK.clamp(min=1e-6)  # a class to which the prior gives nothing needs a vector, too
    means_KD = known_LK.T @ labelled_LD + shares_UK.T @ unlabelled_UD
    rows_KD = means_KD @ whitening_DD  # discriminants, for samples that are not whitened
    common_D = F.normalize(middle_D, dim=0)  # nor has the middle been taken from them: it must favour no class
    return F.normalize(rows_KD - (rows_KD @ common_D)[:, None] * common_D)
