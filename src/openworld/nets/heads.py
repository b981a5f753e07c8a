"""The cosine classifier, the part that most heads consist of. Shapes: B samples, D features, K classes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CosineHead(nn.Module):
    """A classifier whose logits are the cosines between the features of a sample and one unit vector per class::

        logits[b, k] = <features[b], weight[k]> / (||features[b]|| ||weight[k]||)

    A method may use it as any part of its head. The optimiser keeps the vectors of all cosine heads at length 1 and
    trains them with SGD, not with Muon, which is for matrices. The logits are always computed in float32: pseudo-labels
    divide them by 0.05, and half precision is too coarse for that.
    """

    def __init__(self, num_features: int, num_classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_classes, num_features))

    @classmethod
    def drawn(cls, num_features: int, num_classes: int, source: torch.Generator) -> "CosineHead":
        """Return a head whose vectors have random directions."""
        head = cls(num_features, num_classes)
        nn.init.normal_(head.weight, generator=source)
        head.normalise()
        return head

    def forward(self, features_BD: Tensor) -> Tensor:
        with torch.autocast(features_BD.device.type, enabled=False):
            # The averaged model holds means of unit vectors, which are shorter, so weights are normalised too
            return F.linear(F.normalize(features_BD.float()), F.normalize(self.weight))

    @torch.no_grad()
    def normalise(self) -> None:
        """Scale the vectors back to length 1, so that the learning rate keeps its meaning."""
        self.weight.copy_(F.normalize(self.weight))
