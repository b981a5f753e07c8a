"""The cosine classifier, of which most heads are made. Shapes: B samples, D features, K classes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CosineHead(nn.Module):
    """Logits that are cosines between a sample's features and a unit vector for each class.

    Any part of a head may be one: the optimiser keeps the vectors of all of them at length 1, and Muon, which is for
    matrices, leaves them alone.
    Always float32: the pseudo-labels divide these logits by 0.05, which half precision does not survive.
    """

    def __init__(self, num_features: int, num_classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_classes, num_features))

    @classmethod
    def drawn(cls, num_features: int, num_classes: int, source: torch.Generator) -> "CosineHead":
        """With random directions."""
        head = cls(num_features, num_classes)
        nn.init.normal_(head.weight, generator=source)
        head.normalise()
        return head

    def forward(self, features_BD: Tensor) -> Tensor:
        with torch.autocast(features_BD.device.type, enabled=False):
            # normalised here too: a mean of unit vectors, as in the averaged model, is none
            return F.linear(F.normalize(features_BD.float()), F.normalize(self.weight))

    @torch.no_grad()
    def normalise(self) -> None:
        """Put the weights back on the unit sphere, where the learning rate keeps its meaning."""
        self.weight.copy_(F.normalize(self.weight))
