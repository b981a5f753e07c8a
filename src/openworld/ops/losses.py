"""Losses: pure functions of logits and targets. Shapes: B samples, K classes."""

from torch import Tensor


def soft_cross_entropy(logits_BK: Tensor, targets_BK: Tensor) -> Tensor:
    """Compute the mean cross-entropy against target distributions (Eq. 1 of the paper)::

        L = - 1/B sum_b sum_k targets[b, k] log softmax(logits[b])[k]

    Each row of the targets is a probability distribution: a one-hot label, a soft pseudo-label, or a mixture of both.
    """
    return -(targets_BK * logits_BK.log_softmax(dim=1)).sum(dim=1).mean()
