"""Copy a network for inference only, with BatchNorm folded into the convolutions."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from openworld.nets.network import Network
from openworld.nets.resnet import BasicBlock, Bottleneck, ConvNorm


def conv_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    shortcut: Tensor | None = None,
) -> Tensor:
    """Compute relu(conv(x) + bias + shortcut) for inference.

    If cuDNN has a fused kernel, it does this in one kernel, which saves memory traffic.
    """
    if _has_fused_convolutions(x) and weight.shape[1] > 1:  # not tested with one input channel
        geometry = stride, padding, (1, 1), 1
        if shortcut is None:
            return torch.cudnn_convolution_relu(x, weight, bias, *geometry)
        return torch.cudnn_convolution_add_relu(x, weight, shortcut, 1.0, bias, *geometry)
    y = F.conv2d(x, weight, bias, stride, padding)
    return F.relu(y if shortcut is None else y + shortcut)


def _has_fused_convolutions(x: Tensor) -> bool:
    """Return whether to use fused bfloat16 convolutions: on NVIDIA GPUs from Ampere on, unless deterministic."""
    if not x.is_cuda or torch.version.cuda is None or torch.are_deterministic_algorithms_enabled():
        return False
    return torch.cuda.get_device_capability(x.device) >= (8, 0)


class FoldedConv(nn.Module):
    """A ConvNorm in evaluation mode as one convolution. BatchNorm is folded into the weights and a bias."""

    def __init__(self, unit: ConvNorm):
        super().__init__()
        conv = fuse_conv_bn_eval(unit.conv, unit.norm)
        self.stride, self.padding = conv.stride, conv.padding
        dtype = torch.bfloat16 if conv.weight.is_cuda else torch.float32
        self.register_buffer("weight", conv.weight.detach().to(dtype, memory_format=torch.channels_last))
        self.register_buffer("bias", conv.bias.detach().to(dtype))

    def forward(self, x: Tensor, shortcut: Tensor | None = None, relu: bool = True) -> Tensor:
        x, geometry = x.to(self.weight.dtype), (self.stride, self.padding)
        if relu:
            return conv_relu(x, self.weight, self.bias, *geometry, shortcut)
        return F.conv2d(x, self.weight, self.bias, *geometry)


@torch.no_grad()
def inference_copy(network: Network) -> Network:
    """Return a faster copy of the network for inference only: in evaluation mode, without BatchNorm in convolutions."""
    folded = copy.deepcopy(network).eval().requires_grad_(False)
    for name, module in list(folded.named_modules()):
        if isinstance(module, ConvNorm):
            folded.set_submodule(name, FoldedConv(module))
    for block in folded.modules():
        if isinstance(block, (BasicBlock, Bottleneck)) and block.shortcut:  # the two biases are added: one is enough
            block.last.bias += block.shortcut.bias
            block.shortcut.bias = None
    return folded.eval()
