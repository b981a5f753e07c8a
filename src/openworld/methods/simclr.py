"""SimCLR (Chen, Kornblith, Norouzi, Hinton, ICML 2020): learn features without labels, then cluster them into classes.

The loss pulls the two views of an image together and pushes all other images away. Only the head uses labels. It holds
the clusters of the features: labelled samples start the clusters of the seen classes and always stay in them.

Shapes: U samples in two views.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from openworld.core.config import Config
from openworld.data.batches import Batch, Batches
from openworld.methods.base import Method, StepResult
from openworld.nets.features import clustered_head
from openworld.nets.heads import CosineHead
from openworld.nets.network import Network
from openworld.ops.rng import generator

PASSES_OF_CLUSTERS = 4
"""Time of clustering the features once, in passes of all samples through the network."""


class ClustersAndProjection(nn.Module):
    """A head with the clusters that predict, and a projection of the features that only the loss uses."""

    def __init__(self, width: int, num_classes: int, projection: int, source: Generator, seed: int):
        super().__init__()
        self.classes = CosineHead.drawn(width, num_classes, source)
        self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection, bias=False))
        projection_source = generator(seed, "projection")
        for layer in (self.projection[0], self.projection[2]):
            nn.init.kaiming_normal_(layer.weight, generator=projection_source)
        nn.init.zeros_(self.projection[0].bias)

    def forward(self, features_BD: Tensor) -> Tensor:
        return self.classes(features_BD)


class Simclr(Method):
    """A contrastive loss on a projection of the features."""

    uses_labels = False
    fitted = ("head.classes.",)
    helpers = ("head.projection.",)

    @classmethod
    def build_head(cls, config: Config, width: int, num_seen: int, num_classes: int, source: Generator) -> nn.Module:
        return ClustersAndProjection(width, num_classes, config.options.projection, source, config.seed)

    @classmethod
    def passes(cls, config: Config) -> float:
        return PASSES_OF_CLUSTERS

    def loss(self, network: Network, batch: Batch) -> StepResult:
        projected = F.normalize(network.head.projection(network.features(batch.views)))
        return nt_xent(projected, self.config.options.contrast_temperature)

    @torch.no_grad()
    def end_epoch(self, average: Network, batches: Batches, step: int) -> None:
        """Cluster the features of all samples; the clusters become the classes."""
        source = generator(self.config.seed, "clusters", step, device=batches.data.device)
        average.head.classes.weight.copy_(clustered_head(average, batches.data, source))


def nt_xent(projected: Tensor, temperature: float) -> StepResult:
    """Return the contrastive loss: each of the 2U views must identify its partner among all other views."""
    cosines = (projected @ projected.T).fill_diagonal_(-torch.inf)
    partners = torch.arange(len(projected), device=projected.device).roll(len(projected) // 2)
    loss = F.cross_entropy(cosines / temperature, partners)
    is_found = cosines.detach().argmax(dim=1) == partners
    partner_cosine = cosines.detach().gather(1, partners[:, None]).mean()
    return StepResult(loss, {"partner_found": is_found.float().mean(), "partner_cosine": partner_cosine})
