"""EfficientNet-Lite (Tan and Le, ICML 2019; Lite variants 2020): small networks for photos, trained on ImageNet.

They consist of inverted bottlenecks (MBConv) with ReLU6, without squeeze-and-excitation. BatchNorm is folded into the
convolutions when the weights are read: a backbone keeps its statistics, also where its last blocks are trained.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
"""Expansion, channels, blocks, stride and kernel size of each stage of lite0."""
STEM, NUM_FEATURES = 32, 1280
EPSILON = 1e-3
"""Epsilon of BatchNorm in the published networks."""


@dataclass(frozen=True)
class Variant:
    """The size of a network relative to lite0, and the side in pixels of the images that it was trained on."""

    width: float
    depth: float
    side: int


VARIANTS = {
    "efficientnet-lite0": Variant(1.0, 1.0, 224),
    "efficientnet-lite1": Variant(1.0, 1.1, 240),
    "efficientnet-lite2": Variant(1.1, 1.2, 260),
}


class Conv(nn.Conv2d):
    """A convolution with a bias, padded as in TensorFlow: an odd row or column goes to the bottom or the right."""

    def forward(self, x: Tensor) -> Tensor:
        (size, _), (stride, _) = self.kernel_size, self.stride
        if stride == 1:
            return F.conv2d(x, self.weight, self.bias, 1, size // 2, 1, self.groups)
        rows, columns = (max((-(-side // stride) - 1) * stride + size - side, 0) for side in x.shape[2:])
        x = F.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return F.conv2d(x, self.weight, self.bias, stride, 0, 1, self.groups)


class Block(nn.Module):
    """An inverted bottleneck: widen, convolve each channel by itself, narrow. If the shape stays, add the input."""

    def __init__(self, expansion: int, channels_in: int, channels_out: int, stride: int, size: int):
        super().__init__()
        width = expansion * channels_in
        self.expand = Conv(channels_in, width, 1) if expansion > 1 else None
        self.depthwise = Conv(width, width, size, stride, groups=width)
        self.project = Conv(width, channels_out, 1)
        self.has_shortcut = stride == 1 and channels_in == channels_out

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else F.relu6(self.expand(x))
        y = self.project(F.relu6(self.depthwise(y)))
        return y + x if self.has_shortcut else y


class EfficientNetLite(nn.Module):
    """Map normalised images (B, 3, H, W) to features (B, 1280): the last activations, averaged over all places."""

    num_features = NUM_FEATURES

    def __init__(self, variant: Variant):
        super().__init__()
        self.stem = Conv(3, STEM, 3, 2)
        blocks, channels_in = [], STEM
        for number, (expansion, channels, repeats, stride, size) in enumerate(STAGES):
            is_first_or_last = number in (0, len(STAGES) - 1)  # these stages are equally deep in all variants
            channels = max(8, int(channels * variant.width + 4) // 8 * 8)
            for repeat in range(repeats if is_first_or_last else math.ceil(repeats * variant.depth)):
                blocks.append(Block(expansion, channels_in, channels, 1 if repeat else stride, size))
                channels_in = channels
        self.blocks = nn.Sequential(*blocks)
        self.last = Conv(channels_in, NUM_FEATURES, 1)

    def forward(self, images: Tensor) -> Tensor:
        return F.relu6(self.last(self.blocks(F.relu6(self.stem(images))))).mean(dim=(2, 3))

    def stages(self) -> list[nn.Module]:
        """Return the blocks in their order. The last convolution belongs to the last block."""
        return [*self.blocks[:-1], nn.ModuleList([self.blocks[-1], self.last])]


def body_of(weights: Mapping[str, Tensor]) -> tuple[str, EfficientNetLite] | None:
    """Return the network whose published weights these are, with its name. None if they are of another network."""
    try:
        ours = folded(weights)
    except (KeyError, IndexError, RuntimeError):  # names or shapes differ
        return None
    for name, variant in VARIANTS.items():
        body = EfficientNetLite(variant)
        if {key: value.shape for key, value in body.state_dict().items()} == {k: v.shape for k, v in ours.items()}:
            body.load_state_dict(ours)
            return name, body
    return None


def folded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a published file under our names, with BatchNorm folded into the convolutions."""
    places = {"_conv_stem": ("_bn0", "stem"), "_conv_head": ("_bn1", "last")}
    in_a_block = {
        "_expand_conv": ("_bn0", "expand"),
        "_depthwise_conv": ("_bn1", "depthwise"),
        "_project_conv": ("_bn2", "project"),
    }
    for name in weights:
        block, _, conv = name.removesuffix(".weight").rpartition(".")
        if conv in in_a_block:
            norm, part = in_a_block[conv]
            places[f"{block}.{conv}"] = f"{block}.{norm}", f"{block.removeprefix('_')}.{part}"
    ours = {}
    for conv, (norm, place) in places.items():
        scale = weights[f"{norm}.weight"] * (weights[f"{norm}.running_var"] + EPSILON).rsqrt()
        ours[f"{place}.weight"] = weights[f"{conv}.weight"] * scale[:, None, None, None]
        ours[f"{place}.bias"] = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
    return ours
