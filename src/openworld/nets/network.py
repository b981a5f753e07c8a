"""Residual networks with the stems of the paper, other bodies, and the cosine classifier that most heads are made of.

Shapes: B samples, D features, K classes (seen first, then novel).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from openworld.compute.compiling import compilable
from openworld.nets.bodies import BODIES, Shape


class Network(nn.Module):
    """Pixels in [0, 1] or features in, logits out; normalisation is inside, so a checkpoint is complete.

    The head is made by the method that trains the network. From features (B, D) it makes the logits (B, K) by which the
    network answers, seen classes first; and it holds whatever other layers the method trains.
    """

    def __init__(self, body: nn.Module, head: nn.Module, mean: Tensor, std: Tensor, norm_rows: int | None = None):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.body = body
        self.head = head
        self.norm_rows = norm_rows

    def features(self, images: Tensor) -> Tensor:
        """(B, D), before the head; float32, whatever the body computes in."""
        return self._grouped(self._features, images)

    def forward(self, images: Tensor) -> Tensor:
        return self._grouped(lambda rows: self.head(self._features(rows)), images)

    def _features(self, images: Tensor) -> Tensor:
        return (_train_features if self.training else _features)(self, images).float()

    def _grouped(self, function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Where BatchNorm learns from groups of rows, each goes through by itself."""
        if not self.training or self.norm_rows is None or len(images) <= self.norm_rows:
            return function(images)
        return in_groups(function, images, self.norm_rows)


def in_groups(function: Callable[[Tensor], Tensor], rows_B: Tensor, most: int) -> Tensor:
    """The function of groups of at most so many rows, and at least two: of G groups, row i belongs to group i modulo G.

    So a group has rows from all over the batch, of labelled and unlabelled samples alike.
    """
    num_groups = max(1, min(-(-len(rows_B) // most), len(rows_B) // 2))
    parts = [function(rows_B[group::num_groups]) for group in range(num_groups)]
    together = parts[0].new_empty(len(rows_B), *parts[0].shape[1:])
    for group, part in enumerate(parts):
        together[group::num_groups] = part
    return together


def _features(network: Network, images: Tensor) -> Tensor:
    images = (images - network.mean) / network.std
    if images.dim() == 4:
        images = images.contiguous(memory_format=torch.channels_last)
    # bfloat16 halves the bytes and doubles the arithmetic on a GPU; on some CPUs it kills the process
    with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
        return network.body(images)


_train_features = compilable(_features)  # without the head: one compilation serves any number of classes


def build_network(
    name: str,
    shape: Shape,
    mean_C: Tensor,
    std_C: Tensor,
    build_head: Callable[[int, torch.Generator], nn.Module],
    source: torch.Generator,
    norm_rows: int | None = None,
) -> Network:
    """A network for samples of this shape with these statistics, with weights drawn from the given generator.

    `build_head(width, source)` gives the head for so many features.
    """
    body = BODIES[name](shape)
    for module in body.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=source)
    mean, std = (each_C.view(-1, *[1] * (len(shape) - 1)) for each_C in (mean_C, std_C))
    network = Network(body, build_head(body.num_features, source), mean, std, norm_rows)
    return network.to(memory_format=torch.channels_last)  # a third faster on CPU, more on a GPU


# A network that only answers ---------------------------------------------------------------------------------
