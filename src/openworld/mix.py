"""Mixup: convex combinations of pairs of rows."""

import random

import torch
from torch import Tensor

from openworld.rng import derived_seed, generator


def mixup(*tensors: Tensor, weight: float, partners: Tensor) -> tuple[Tensor, ...]:
    """weight * row + (1 - weight) * its partner's row, with the same weight and partners for all tensors."""
    return tuple(weight * tensor + (1 - weight) * tensor[partners] for tensor in tensors)


def draw_weight(alpha: float, seed: int, step: int) -> float:
    """One weight ~ Beta(alpha, alpha) for a whole step.

    It is not folded to >= 0.5: the partners are a permutation, so swapping the roles gives the same batch.
    """
    return random.Random(derived_seed(seed, "mixup-weight", step)).betavariate(alpha, alpha)


def draw_partners(rows: int, seed: int, step: int, device: torch.device) -> Tensor:
    """A permutation of the rows."""
    source = generator(seed, "mixup-partners", step, device=device)
    return torch.randperm(rows, generator=source, device=device)
