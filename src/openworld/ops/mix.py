"""Mixup: convex combinations of pairs of rows."""

import random

import torch
from torch import Tensor

from openworld.ops.rng import derived_seed, generator


def mixup(*tensors: Tensor, weight: Tensor, partners: Tensor) -> tuple[Tensor, ...]:
    """weight * row + (1 - weight) * its partner's row, with the same weight and partners for all tensors."""
    return tuple(weight * tensor + (1 - weight) * tensor[partners] for tensor in tensors)


def draw_weight(alpha: float, seed: int, step: int) -> Tensor:
    """One weight ~ Beta(alpha, alpha) for a whole step.

    It is not folded to >= 0.5: the partners are a permutation, so swapping the roles gives the same batch.
    """
    weight = random.Random(derived_seed(seed, "mixup-weight", step)).betavariate(alpha, alpha)
    return torch.tensor(weight, dtype=torch.float64)


def draw_partners(rows: int, seed: int, step: int) -> Tensor:
    """A permutation of the rows."""
    return torch.randperm(rows, generator=generator(seed, "mixup-partners", step))
