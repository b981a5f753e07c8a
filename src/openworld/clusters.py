"""Classes from features alone: clusters, of which those that hold a seen class's labels stand for it.

Shapes: N samples, L of them labelled, D features, K classes (seen first, then novel).
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.data.problem import TrainingSet
from openworld.features import extract
from openworld.kmeans import kmeans_sweep
from openworld.metrics import matched_columns
from openworld.nets import Network

RUNS = 3
"""Of k-means, of which the best counts."""


@torch.no_grad()
def clustered_head(network: Network, data: TrainingSet, source: Generator) -> Tensor:
    """(K, D) unit vectors: the centres of the clusters of all samples' features; of a network in evaluation mode."""
    labelled, unlabelled = (extract(network, part, data.family) for part in (data.labelled, data.unlabelled))
    (clusters,) = kmeans_sweep(torch.cat([labelled, unlabelled]), [data.num_classes], source, RUNS)
    best = int(clusters.inertia.argmin())
    order = seen_first(clusters.labels[best, : len(labelled)], data.labels, data.num_classes)
    return F.normalize(clusters.centres[best][order])


@torch.no_grad()
def first_head(network: Network, data: TrainingSet, source: Generator) -> Tensor:
    """(K, D) to begin training with: where a class has labelled samples, their mean says more than a cluster."""
    head = clustered_head(network, data, source)
    features_LD = extract(network, data.labelled, data.family)
    sums_SD = torch.zeros_like(head[: data.num_seen]).index_add_(0, data.labels, features_LD)
    return torch.cat([F.normalize(sums_SD), head[data.num_seen :]])


def seen_first(clusters_L: Tensor, labels_L: Tensor, num_clusters: int) -> Tensor:
    """An order of the clusters that begins with those which the seen classes match best, one each.

    >>> seen_first(torch.tensor([2, 2, 1]), torch.tensor([0, 0, 1]), num_clusters=3).tolist()
    [2, 1, 0]
    """
    num_seen = int(labels_L.max()) + 1
    counts = torch.zeros(num_seen, num_clusters, dtype=torch.int64)
    counts.index_put_((labels_L.cpu(), clusters_L.cpu()), torch.ones(len(labels_L), dtype=torch.int64), accumulate=True)
    matched = matched_columns(counts.numpy()).tolist()
    return torch.tensor([*matched, *(set(range(num_clusters)) - set(matched))], device=clusters_L.device)
