"""The bodies (backbones) of networks by name. A body turns samples into features."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openworld.nets.resnet import BasicBlock, Bottleneck, ResNet, cifar_stem, standard_stem, strided_stem, tiny_stem
from openworld.ops.discovery import DIMENSIONS

Shape = tuple[int, ...]
"""Shape of a sample as the network sees it: (C, H, W) for an image, (D,) for features."""


class MLP(nn.Module):
    """A multilayer perceptron with BatchNorm, for data that are features already."""

    def __init__(self, features_in: int, widths: Sequence[int]):
        super().__init__()
        layers: list[nn.Module] = []
        for width in widths:
            layers += [nn.Linear(features_in, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
            features_in = width
        self.layers = nn.Sequential(*layers)
        self.num_features = features_in

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features)


class Adapter(nn.Module):
    """One linear map of good features, which whitens the classes in them if the run begins with clusters."""

    def __init__(self, features_in: int):
        super().__init__()
        self.num_features = min(features_in, DIMENSIONS)
        self.linear = nn.Linear(features_in, self.num_features)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.inputs(features))

    @staticmethod
    def inputs(features: Tensor) -> Tensor:
        """Return the unit vectors that are mapped: of the roots, because a few large activations would outweigh all."""
        return F.normalize(features.sign() * features.abs().sqrt())

    @torch.no_grad()
    def begin(self, mean_D: Tensor, projection_Dd: Tensor) -> None:
        """Set the map to `x -> (x - mean) projection`."""
        self.linear.weight.copy_(projection_Dd.T)
        self.linear.bias.copy_(-mean_D @ projection_Dd)


class Identity(nn.Module):
    """Return the normalised pixels or features unchanged, flattened to one vector."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.num_features = math.prod(shape)

    def forward(self, samples: Tensor) -> Tensor:
        return samples.flatten(1)


def _resnet18(stem: Callable[[int, int], nn.Module]) -> Callable[[Shape], ResNet]:
    return lambda shape: ResNet(BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512), stem, shape[0])


def _resnet50(stem: Callable[[int, int], nn.Module]) -> Callable[[Shape], ResNet]:
    return lambda shape: ResNet(Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), stem, shape[0])


BODIES: dict[str, Callable[[Shape], nn.Module]] = {
    "resnet18-cifar": _resnet18(cifar_stem),
    "resnet18-tiny": _resnet18(tiny_stem),
    "resnet18": _resnet18(standard_stem),
    "resnet50-cifar": _resnet50(cifar_stem),
    "resnet50-tiny": _resnet50(tiny_stem),
    "resnet50": _resnet50(standard_stem),
    "mlp": lambda shape: MLP(shape[0], (512, 256)),
    "small-32": lambda shape: ResNet(BasicBlock, (1, 1, 1), (32, 64, 128), strided_stem(2), shape[0]),
    "small-64": lambda shape: ResNet(BasicBlock, (1, 1, 1), (32, 64, 128), strided_stem(4), shape[0]),
    "small": lambda shape: ResNet(BasicBlock, (1, 1), (32, 64), cifar_stem, shape[0]),
    "adapter": lambda shape: Adapter(shape[0]),
    "identity": Identity,
}
"""Functions from the shape of a sample to a body, by the name that `--network` takes."""
