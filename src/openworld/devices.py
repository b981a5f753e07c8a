"""Choosing the device, and putting a network on it."""

import torch
from torch import nn

from openworld.errors import UserError


def pick_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def place(network: nn.Module, device: torch.device) -> nn.Module:
    """The network on the device, its weights in the layout that is fast there."""
    if device.type == "cuda":
        return network.to(device, memory_format=torch.channels_last)
    return network.to(device)
