"""SimCLR (Chen, Kornblith, Norouzi, Hinton, ICML 2020): features without labels, and their clusters for the classes.

The two views of an image attract each other, all other images repel. Labels are used only by the head, which holds the
clusters of the features: those of the seen classes begin, and stay, with the labelled samples.

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
"""Over all samples: as long as it takes to find clusters of their features, once."""


class ClustersAndProjection(nn.Module):
    """Clusters that answer; and a projection of the features for the loss, which is thrown away afterwards."""

    def __init__(self, width: int, num_classes: int, projection: int, source: Generator, seed: int):
        super().__init__()
        self.classes = CosineHead.drawn(width, num_classes, source)
        self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection, bias=False))
        of_projection = generator(seed, "projection")
        for layer in (self.projection[0], self.projection[2]):
            nn.init.kaiming_normal_(layer.weight, generator=of_projection)
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
        """The classes become the clusters of all samples' features."""
        source = generator(self.config.seed, "clusters", step, device=batches.data.device)
        average.head.classes.weight.copy_(clustered_head(average, batches.data, source))


def nt_xent(projected: Tensor, temperature: float) -> StepResult:
    """Each of the 2U views has to tell its partner from all the others."""
    cosines = (projected @ projected.T).fill_diagonal_(-torch.inf)
    partners = torch.arange(len(projected), device=projected.device).roll(len(projected) // 2)
    loss = F.cross_entropy(cosines / temperature, partners)
    found = cosines.detach().argmax(dim=1) == partners
    attracted = cosines.detach().gather(1, partners[:, None]).mean()
    return StepResult(loss, {"partner_found": found.float().mean(), "partner_cosine": attracted})
