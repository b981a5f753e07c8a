"""Random views: batched, a draw for each sample, on the device of the images.

A family maps (uint8 images, generator) to floats in [0, 1]. Shapes: B samples, C channels, H x W pixels.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor


def digits_views(images: Tensor, source: Generator) -> Tensor:
    """Gentle affine changes, as between two hands that write the same digit: turn, shear, scale, shift."""
    turn = _uniform(images, source, -15, 15) * (math.pi / 180)
    shear = _uniform(images, source, -0.2, 0.2)
    scale_x, scale_y = (1 / _uniform(images, source, 0.85, 1.15) for _ in range(2))
    shift_x, shift_y = (_uniform(images, source, -0.2, 0.2) for _ in range(2))
    cos, sin = turn.cos(), turn.sin()
    rows = [
        torch.stack([scale_x * cos, scale_x * (shear * cos - sin), shift_x], dim=1),
        torch.stack([scale_y * sin, scale_y * (shear * sin + cos), shift_y], dim=1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), list(images.shape), align_corners=False)
    return F.grid_sample(images.float() / 255, grid, align_corners=False, padding_mode="zeros")


FAMILIES: dict[str, Callable[[Tensor, Generator], Tensor]] = {"digits": digits_views}


def _uniform(images: Tensor, source: Generator, low: float, high: float) -> Tensor:
    """One draw a sample."""
    return torch.rand(len(images), generator=source, device=images.device) * (high - low) + low
