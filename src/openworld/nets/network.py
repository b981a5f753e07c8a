"""The network: normalisation, body and head in one module.

Shapes: B samples, D features, K classes (seen first, then novel).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from openworld.compute.compiling import compilable
from openworld.nets.bodies import BODIES, Shape


class Network(nn.Module):
    """Map pixels in [0, 1] or features to logits. It normalises its inputs itself, so a checkpoint is complete.

    With a backbone it takes both: images, and the features that the backbone gives for them.

    The method that trains the network builds the head. The head maps features (B, D) to the logits (B, K) of the
    predictions, seen classes first. It also holds all other layers that the method trains.

    Args:
        body: maps normalised samples to features.
        head: maps features to logits.
        mean: the mean of each channel or feature of the training set, in a shape that broadcasts over the samples.
        std: the standard deviations, likewise.
        norm_rows: the number of rows that BatchNorm normalises together in training; None for the whole batch.
        backbone: a pretrained network that turns images into the features that the rest of this network takes. None if
            the network takes images itself, or gets only features.
    """

    def __init__(
        self,
        body: nn.Module,
        head: nn.Module,
        mean: Tensor,
        std: Tensor,
        norm_rows: int | None = None,
        backbone: nn.Module | None = None,
    ):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.backbone = backbone
        self.body = body
        self.head = head
        self.norm_rows = norm_rows

    def features(self, images: Tensor) -> Tensor:
        """Return the (B, D) features before the head, always in float32."""
        return self._grouped(self._features, images)

    def forward(self, images: Tensor) -> Tensor:
        return self._grouped(lambda rows: self.head(self._features(rows)), images)

    def normalised(self, images: Tensor) -> Tensor:
        """Return the input of the body: normalised images, or normalised features by the backbone."""
        if self.backbone is not None and images.dim() == 4:
            images = self.backbone(images)
        return (images - self.mean) / self.std

    def _features(self, images: Tensor) -> Tensor:
        return (_train_features if self.training else _features)(self, images).float()

    def _grouped(self, function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Apply the function to all rows, or in training to groups of `norm_rows` rows if that is set."""
        if not self.training or self.norm_rows is None or len(images) <= self.norm_rows:
            return function(images)
        return in_groups(function, images, self.norm_rows)


def in_groups(function: Callable[[Tensor], Tensor], rows_B: Tensor, most: int) -> Tensor:
    """Apply a function to groups of rows and return its outputs in the order of the rows.

    A group has at most `most` rows, unless groups would then have fewer than two. With G groups, row i belongs to group
    i modulo G, so each group has rows from the whole batch, of labelled and unlabelled samples.
    """
    num_groups = max(1, min(-(-len(rows_B) // most), len(rows_B) // 2))
    parts = [function(rows_B[group::num_groups]) for group in range(num_groups)]
    outputs = parts[0].new_empty(len(rows_B), *parts[0].shape[1:])
    for group, part in enumerate(parts):
        outputs[group::num_groups] = part
    return outputs


def _features(network: Network, images: Tensor) -> Tensor:
    images = network.normalised(images)
    if images.dim() == 4:
        images = images.contiguous(memory_format=torch.channels_last)
    # On a GPU, bfloat16 halves the bytes and doubles the arithmetic speed. On some CPUs it crashes the process.
    with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
        return network.body(images)


_train_features = compilable(_features)  # without the head, so the compiled code fits any number of classes


def build_network(
    name: str,
    shape: Shape,
    mean_C: Tensor,
    std_C: Tensor,
    build_head: Callable[[int, torch.Generator], nn.Module],
    source: torch.Generator,
    norm_rows: int | None = None,
    backbone: nn.Module | None = None,
) -> Network:
    """Build a network with random initial weights.

    Args:
        name: the name of the body, a key of `BODIES`.
        shape: the shape of a sample.
        mean_C: the mean of each channel or feature.
        std_C: the standard deviation of each channel or feature.
        build_head: `build_head(width, source)` returns the head for `width` features.
        source: the generator of all initial weights.
        norm_rows: as in `Network`.
        backbone: as in `Network`; its weights are kept.
    """
    body = BODIES[name](shape)
    for module in body.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=source)
    mean, std = (each_C.view(-1, *[1] * (len(shape) - 1)) for each_C in (mean_C, std_C))
    network = Network(body, build_head(body.num_features, source), mean, std, norm_rows, backbone)
    return network.to(memory_format=torch.channels_last)  # a third faster on a CPU, more on a GPU
