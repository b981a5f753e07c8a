"""SimCLR (Chen, Kornblith, Norouzi, Hinton, ICML 2020): features without labels, and their clusters for the classes.

The two views of an image attract each other, all other images repel. Labels are used only by the head, which holds the
clusters of the features: those of the seen classes begin, and stay, with the labelled samples.

Shapes: U samples in two views.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openworld.clusters import clustered_head
from openworld.config import Config
from openworld.data.batches import Batch, Batches
from openworld.data.problem import TrainingSet
from openworld.methods.base import Method, StepResult
from openworld.nets import BODIES, Network
from openworld.rng import generator


class Simclr(Method):
    """A contrastive loss on a projection of the features, which is thrown away afterwards."""

    num_views = 2
    uses_labels = False
    trains_head = False

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__(config, data)
        self.options, self.seed = config.simclr, config.seed
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
        source = generator(self.seed, "clusters", step, device=batches.data.device)
        average.head.weight.copy_(clustered_head(average, batches.data, source))


def nt_xent(projected: Tensor, temperature: float) -> StepResult:
    """Each of the 2U views has to tell its partner from all the others."""
    cosines = (projected @ projected.T).fill_diagonal_(-torch.inf)
    partners = torch.arange(len(projected), device=projected.device).roll(len(projected) // 2)
    loss = F.cross_entropy(cosines / temperature, partners)
    found = cosines.detach().argmax(dim=1) == partners
    attracted = cosines.detach().gather(1, partners[:, None]).mean()
    return StepResult(loss, {"partner_found": found.float().mean(), "partner_cosine": attracted})
