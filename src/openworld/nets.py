"""Residual networks with the stems of the paper, other bodies, and the cosine classifier that most heads are made of.

Shapes: B samples, D features, K classes (seen first, then novel).
"""

import copy
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from openworld.compiling import compilable
from openworld.engine import conv_relu

Shape = tuple[int, ...]
"""Of a sample as a network sees it: (C, H, W) of an image, (D,) of features."""


class ConvNorm(nn.Module):
    """A convolution, its BatchNorm, a shortcut that may be added, and a ReLU that may be left out."""

    def __init__(self, channels_in: int, channels_out: int, size: int, stride: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, size, stride, size // 2, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x: Tensor, shortcut: Tensor | None = None, relu: bool = True) -> Tensor:
        y = self.norm(self.conv(x))
        if shortcut is not None:
            y = y + shortcut
        return F.relu(y) if relu else y


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, channels_in: int, width: int, stride: int):
        super().__init__()
        self.first = ConvNorm(channels_in, width, 3, stride)
        self.last = ConvNorm(width, width, 3)
        self.shortcut = _shortcut(channels_in, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x, relu=False) if self.shortcut else x
        return self.last(self.first(x), shortcut)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, and a shortcut."""

    expansion = 4

    def __init__(self, channels_in: int, width: int, stride: int):
        super().__init__()
        self.first = ConvNorm(channels_in, width, 1)
        self.middle = ConvNorm(width, width, 3, stride)
        self.last = ConvNorm(width, width * self.expansion, 1)
        self.shortcut = _shortcut(channels_in, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x, relu=False) if self.shortcut else x
        return self.last(self.middle(self.first(x)), shortcut)


def _shortcut(channels_in: int, channels_out: int, stride: int) -> ConvNorm | None:
    """Where the shape changes, the shortcut has weights of its own."""
    if stride == 1 and channels_in == channels_out:
        return None
    return ConvNorm(channels_in, channels_out, 1, stride)


def cifar_stem(channels_in: int, width: int) -> nn.Sequential:
    """For 32 px and less: a 3x3 convolution that keeps the size."""
    return nn.Sequential(ConvNorm(channels_in, width, 3))


def tiny_stem(channels_in: int, width: int) -> nn.Sequential:
    """For 64 px: the same, and the max-pooling of the standard stem."""
    return nn.Sequential(ConvNorm(channels_in, width, 3), nn.MaxPool2d(3, 2, 1))


def strided_stem(stride: int) -> Callable[[int, int], nn.Sequential]:
    """For photos on a CPU: a convolution that looks at every second pixel (3x3), or at every fourth (5x5)."""
    return lambda channels_in, width: nn.Sequential(ConvNorm(channels_in, width, stride + 1, stride))


def standard_stem(channels_in: int, width: int) -> nn.Sequential:
    """For 224 px: a 7x7 convolution with stride 2, then max-pooling."""
    return nn.Sequential(ConvNorm(channels_in, width, 7, 2), nn.MaxPool2d(3, 2, 1))


class ResNet(nn.Module):
    """A stem, stages of residual blocks (each after the first halves the size), and average pooling."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        stem: Callable[[int, int], nn.Module],
        channels_in: int,
    ):
        super().__init__()
        self.stem = stem(channels_in, widths[0])
        blocks, channels = [], widths[0]
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(block(channels, width, stride))
                channels = width * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.num_features = channels

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(self.stem(images)).mean(dim=(2, 3), dtype=torch.float32)


class MLP(nn.Module):
    """For features that were made elsewhere: layers with BatchNorm in between."""

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


class Identity(nn.Module):
    """Pixels or features, normalised, as they are."""

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
    "identity": Identity,
}


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


class FoldedConv(nn.Module):
    """A ConvNorm in evaluation mode as one convolution: BatchNorm is folded into its weights and a bias."""

    def __init__(self, unit: ConvNorm):
        super().__init__()
        conv = fuse_conv_bn_eval(unit.conv, unit.norm)
        self.stride, self.padding = conv.stride, conv.padding
        dtype = torch.bfloat16 if conv.weight.is_cuda else torch.float32
        self.register_buffer("weight", conv.weight.detach().to(dtype, memory_format=torch.channels_last))
        self.register_buffer("bias", conv.bias.detach().to(dtype))

    def forward(self, x: Tensor, shortcut: Tensor | None = None, relu: bool = True) -> Tensor:
        x, places = x.to(self.weight.dtype), (self.stride, self.padding)
        if relu:
            return conv_relu(x, self.weight, self.bias, *places, shortcut)
        return F.conv2d(x, self.weight, self.bias, *places)


@torch.no_grad()
def frozen(network: Network) -> Network:
    """A copy that only answers, and does so faster: in evaluation mode, without BatchNorm."""
    answering = copy.deepcopy(network).eval().requires_grad_(False)
    for name, module in list(answering.named_modules()):
        if isinstance(module, ConvNorm):
            answering.set_submodule(name, FoldedConv(module))
    for block in answering.modules():
        if isinstance(block, (BasicBlock, Bottleneck)) and block.shortcut:  # two biases that are added: one will do
            block.last.bias += block.shortcut.bias
            block.shortcut.bias = None
    return answering.eval()
