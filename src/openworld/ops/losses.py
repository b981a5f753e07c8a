"""Losses: pure functions of logits and targets."""

from torch import Tensor


def soft_cross_entropy(logits_BK: Tensor, targets_BK: Tensor) -> Tensor:
    """Cross-entropy against target distributions, the mean over the rows (the paper's Eq. 1)."""
    return -(targets_BK * logits_BK.log_softmax(dim=1)).sum(dim=1).mean()
