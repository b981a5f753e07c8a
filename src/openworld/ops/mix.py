"""Mixup (Zhang et al., 2018): convex combinations of pairs of rows."""

import random

import torch
from torch import Tensor

from openworld.ops.rng import derived_seed, generator


def mixup(*tensors: Tensor, weight: Tensor, partners: Tensor) -> tuple[Tensor, ...]:
    """Mix each row of each tensor with the row of its partner::

        mixed[b] = weight * rows[b] + (1 - weight) * rows[partners[b]]

    All tensors have B rows and are mixed with the same weight and the same partners: pass images and targets together.

    Args:
        tensors: each (B, ...).
        weight: a scalar in [0, 1].
        partners: (B,) row numbers.
    """
    return tuple(weight * tensor + (1 - weight) * tensor[partners] for tensor in tensors)


def draw_weight(alpha: float, seed: int, step: int) -> Tensor:
    """Draw one weight from Beta(alpha, alpha) for a whole step.

    The weight is not folded to >= 0.5. The partners are a permutation, so swapping the roles gives the same batch.
    """
    weight = random.Random(derived_seed(seed, "mixup-weight", step)).betavariate(alpha, alpha)
    return torch.tensor(weight, dtype=torch.float64)


def draw_partners(rows: int, seed: int, step: int) -> Tensor:
    """Draw a random permutation of the rows."""
    return torch.randperm(rows, generator=generator(seed, "mixup-partners", step))
