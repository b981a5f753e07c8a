"""SimCLR (Chen, Kornblith, Norouzi, Hinton, ICML 2020): features without labels, and k-means for the classes.

The two views of an image attract each other, all other images repel. Labels are used only to name clusters: the head
holds the k-means centres of the features, those that the labelled samples match best as the seen classes.

Shapes: U samples in two views, D features, K classes (seen first, then novel).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openworld.config import Config
from openworld.data.batches import Batch, Batches
from openworld.data.problem import TrainingSet
from openworld.features import extract
from openworld.kmeans import kmeans_sweep
from openworld.methods.base import Method, StepResult
from openworld.metrics import matched_columns
from openworld.nets import BODIES, Network
from openworld.rng import generator

RUNS = 3
"""Of k-means, of which the best counts."""


class Simclr(Method):
    """A contrastive loss on a projection of the features, which is thrown away afterwards."""

    num_views = 2
    uses_labels = False
    trains_head = False

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__(config, data)
        self.options, self.seed, self.num_seen = config.simclr, config.seed, data.num_seen
        with torch.device("meta"):  # no weights are made: only the width is asked for
            width = BODIES[config.training.network](len(data.mean)).num_features
        self.projection = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.options.projection, bias=False)
        )
        source = generator(config.seed, "projection")
        for layer in (self.projection[0], self.projection[2]):
            nn.init.kaiming_normal_(layer.weight, generator=source)
        nn.init.zeros_(self.projection[0].bias)
        self.to(data.device)

    def loss(self, network: Network, batch: Batch) -> StepResult:
        projected = F.normalize(self.projection(network.features(batch.views)))
        return nt_xent(projected, self.options.contrast_temperature)

    @torch.no_grad()
    def end_epoch(self, average: Network, batches: Batches, step: int) -> None:
        """The head becomes the clusters of all samples' features."""
        data = batches.data
        labelled, unlabelled = (extract(average, part, data.family) for part in (data.labelled, data.unlabelled))
        source = generator(self.seed, "clusters", step, device=data.device)
        (clusters,) = kmeans_sweep(torch.cat([labelled, unlabelled]), [data.num_classes], source, RUNS)
        best = int(clusters.inertia.argmin())
        labels = clusters.labels[best, : len(labelled)]
        average.head.weight.copy_(clusters.centres[best][seen_first(labels, data.labels, data.num_classes)])
        average.head.normalise()


def nt_xent(projected: Tensor, temperature: float) -> StepResult:
    """Each of the 2U views has to tell its partner from all the others."""
    cosines = (projected @ projected.T).fill_diagonal_(-torch.inf)
    partners = torch.arange(len(projected), device=projected.device).roll(len(projected) // 2)
    loss = F.cross_entropy(cosines / temperature, partners)
    found = cosines.detach().argmax(dim=1) == partners
    attracted = cosines.detach().gather(1, partners[:, None]).mean()
    return StepResult(loss, {"partner_found": found.float().mean(), "partner_cosine": attracted})


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
