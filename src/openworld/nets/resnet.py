"""Residual networks with the stems of the paper."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvNorm(nn.Module):
    """A convolution and its BatchNorm, then an optional shortcut that is added, and an optional ReLU."""

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
    """Return a 1x1 convolution for the shortcut if the shape changes, or None for the identity."""
    if stride == 1 and channels_in == channels_out:
        return None
    return ConvNorm(channels_in, channels_out, 1, stride)


def cifar_stem(channels_in: int, width: int) -> nn.Sequential:
    """Return a stem for images of 32 px or less: a 3x3 convolution that keeps the size."""
    return nn.Sequential(ConvNorm(channels_in, width, 3))


def tiny_stem(channels_in: int, width: int) -> nn.Sequential:
    """Return a stem for images of 64 px: the CIFAR stem, then the max-pooling of the standard stem."""
    return nn.Sequential(ConvNorm(channels_in, width, 3), nn.MaxPool2d(3, 2, 1))


def strided_stem(stride: int) -> Callable[[int, int], nn.Sequential]:
    """Return a stem for photos on a CPU: one convolution with stride 2 (3x3) or stride 4 (5x5)."""
    return lambda channels_in, width: nn.Sequential(ConvNorm(channels_in, width, stride + 1, stride))


def standard_stem(channels_in: int, width: int) -> nn.Sequential:
    """Return a stem for images of 224 px: a 7x7 convolution with stride 2, then max-pooling."""
    return nn.Sequential(ConvNorm(channels_in, width, 7, 2), nn.MaxPool2d(3, 2, 1))


class ResNet(nn.Module):
    """A residual network: a stem, stages of blocks, and average pooling. Each stage after the first halves the size."""

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
