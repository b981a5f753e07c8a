"""Classes from features: clusters around centres, of which labels tell where the seen classes' own are.

Shapes: L labelled and U unlabelled samples of D features, S seen classes, K classes (seen first, then novel), R runs.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.data.problem import TrainingSet
from openworld.features import extract
from openworld.kmeans import new_centres, squared_distances
from openworld.nets import Network

RUNS = 10
"""From different first centres; the best counts."""
ROUNDS = 30
SOFTNESS = 0.05
"""The temperature of a sample's shares in the clusters: shares of 0 and 1 get stuck more often."""


@torch.no_grad()
def clustered_head(network: Network, data: TrainingSet, source: Generator) -> Tensor:
    """(K, D) unit vectors: the mean features of the classes, as labels and clusters tell them apart.

    Of a network in evaluation mode.
    """
    labelled_LD, unlabelled_UD = (extract(network, part, data.family) for part in (data.labelled, data.unlabelled))
    known_LK = F.one_hot(data.labels, data.num_classes).to(labelled_LD)
    shares_UK = cluster(labelled_LD, data.labels, unlabelled_UD, data.num_classes, source)
    return F.normalize(known_LK.T @ labelled_LD + shares_UK.T @ unlabelled_UD)


def cluster(labelled_LD: Tensor, labels_L: Tensor, unlabelled_UD: Tensor, count: int, source: Generator) -> Tensor:
    """(U, K) the shares of each unlabelled sample in `count` clusters, those of the seen classes first.

    Soft k-means on the sphere, with two differences (docs/log.md says what each is worth): what samples of one class
    differ in counts less, and the seen classes' centres stay where their labelled samples are.
    """
    labelled_LD, unlabelled_UD = whitened(labelled_LD, labels_L, unlabelled_UD)
    seen_SD = F.normalize(class_means(labelled_LD, labels_L))
    starts_RKD = first_centres(seen_SD, unlabelled_UD, count, source)
    settled_RKD = [settle_novel(unlabelled_UD, centres_KD, len(seen_SD)) for centres_KD in starts_RKD]
    cosines_UK = max((unlabelled_UD @ centres_KD.T for centres_KD in settled_RKD), key=closeness)
    return (cosines_UK / SOFTNESS).softmax(dim=1)


def settle_novel(unlabelled_UD: Tensor, centres_KD: Tensor, num_seen: int) -> Tensor:
    """(K, D) unit vectors: the novel centres have moved to the means of their shares of the samples."""
    for _ in range(ROUNDS):
        shares_UK = (unlabelled_UD @ centres_KD.T / SOFTNESS).softmax(dim=1)
        novel_ND = F.normalize(shares_UK.T[num_seen:] @ unlabelled_UD)
        centres_KD = torch.cat([centres_KD[:num_seen], novel_ND])
    return centres_KD


def closeness(cosines_UK: Tensor) -> float:
    """How near samples are to the nearest centre, on average: what k-means makes large."""
    return float(cosines_UK.amax(dim=1).mean())


def whitened(labelled_LD: Tensor, labels_L: Tensor, unlabelled_UD: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors in which the samples of a seen class differ as much in one direction as in any other, nearly.

    What tells samples of one seen class apart will hardly tell novel classes apart. Few labelled samples do not span
    all directions: their spread is mixed with an even one, as large as that of all samples.
    """
    all_ND = torch.cat([labelled_LD, unlabelled_UD])
    middle_D = all_ND.mean(dim=0)
    spread_LD = labelled_LD - class_means(labelled_LD, labels_L)[labels_L]
    even = all_ND.var(dim=0).mean().clamp(min=1e-12)
    covariance_DD = spread_LD.T @ spread_LD / len(spread_LD) + even * torch.eye(len(middle_D), device=even.device)
    variances_D, directions_DD = torch.linalg.eigh(covariance_DD)
    whitening_DD = directions_DD * variances_D.rsqrt() @ directions_DD.T
    return tuple(F.normalize((part - middle_D) @ whitening_DD) for part in (labelled_LD, unlabelled_UD))


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
