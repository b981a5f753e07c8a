"""Class-distribution-aware assignment: pseudo-labels whose class proportions follow a prior.

Shapes: B samples, K classes (seen first, then novel).
"""

from torch import Tensor

from openworld.compute.compiling import compilable


@compilable
def sinkhorn(
    logits_BK: Tensor,
    prior_K: Tensor,
    epsilon: float = 0.05,
    iterations: int = 3,
    weights_B: Tensor | None = None,
    trust: float | Tensor = 1.0,
) -> Tensor:
    """Assign samples to classes so that class k gets the proportion prior[k] of the samples.

    This solves entropic optimal transport::

        max_A  <A, logits> + epsilon H(A)    with rows of A summing to 1 / B and column k to prior[k]

    The solution is approximate after few iterations and exact in the limit. The function returns B * A. Each row
    of B * A is a probability distribution over the classes. The function updates the dual potentials in the log domain
    and in float32, so large logits and a small epsilon cannot overflow.

    Args:
        logits_BK: the scores of the classes for each sample; a higher score means a better match.
        prior_K: the proportion of each class, summing to 1. A class with prior 0 receives nothing.
        epsilon: the entropic regularisation. Assignments become harder as it becomes smaller.
        iterations: how often columns and rows are rescaled.
        weights_B: by default all samples count alike. With weights, row b sums to its proportion of the weights instead
            of 1 / B. A sample of weight 0 is assigned like the others, but does not count towards the prior.
        trust: how far the columns follow the prior, above 0 and up to 1. Below 1 they need not sum to it exactly:
            instead, the objective loses `epsilon trust / (1 - trust) KL(column sums || prior)` (unbalanced transport).

    >>> import torch
    >>> sinkhorn(torch.zeros(4, 2), torch.tensor([0.75, 0.25]))[0]
    tensor([0.7500, 0.2500])
    """
    scores_BK = logits_BK.float() / epsilon
    log_prior_K = prior_K.float().log()
    # For precision, the rows are shifted to a maximum of zero. The first row potentials undo the shift.
    log_rows_B1 = scores_BK.amax(dim=1, keepdim=True)
    scores_BK = scores_BK - log_rows_B1
    log_weights_B1 = 0.0 if weights_B is None else weights_B[:, None].log()
    log_columns_K = log_prior_K
    for _ in range(iterations):
        log_columns_K = trust * (log_prior_K - (scores_BK + log_rows_B1 + log_weights_B1).logsumexp(dim=0))
        log_rows_B1 = -(scores_BK + log_columns_K).logsumexp(dim=1, keepdim=True)
    return (scores_BK + log_columns_K).softmax(dim=1)


def marginals(targets_BK: Tensor, weights_B: Tensor | None = None) -> Tensor:
    """Return the (K,) class proportions of an assignment: the mean of its rows, weighted by `weights_B` if given."""
    if weights_B is None:
        return targets_BK.mean(dim=0)
    return weights_B @ targets_BK / weights_B.sum()


def marginal_error(targets_BK: Tensor, prior_K: Tensor, weights_B: Tensor | None = None) -> Tensor:
    """Return the total variation distance between the class proportions of an assignment and the prior::

        error = 1/2 sum_k |marginals[k] - prior[k]|

    It is 0 if the assignment follows the prior exactly, and at most 1.
    """
    return 0.5 * (marginals(targets_BK, weights_B) - prior_K).abs().sum()


def order_prior(prior_K: Tensor, marginals_K: Tensor, num_seen: int) -> Tensor:
    """Permute the novel part of the prior to the order of the novel outputs' own marginals.

    It is unknown beforehand which output will represent which novel class (the permutation of Section 3.1 of the
    paper). The largest novel proportion goes to the novel output that is predicted most. The proportions of the seen
    classes stay in their places.

    >>> import torch
    >>> order_prior(torch.tensor([0.5, 0.1, 0.4]), torch.tensor([0.2, 0.6, 0.2]), num_seen=1)
    tensor([0.5000, 0.4000, 0.1000])
    """
    ordered_K = prior_K.clone()
    by_size = marginals_K[num_seen:].argsort(descending=True, stable=True)
    ordered_K[num_seen + by_size] = prior_K[num_seen:].sort(descending=True).values
    return ordered_K


DAMPING, FLOOR = 0.5, 0.01
"""How far a prior moves to the predicted proportions at once, and the least proportion, relative to 1 / K."""


def moved_prior(prior_K: Tensor, predicted_K: Tensor, num_seen: int) -> Tensor:
    """Move a prior half of the way to the predicted class proportions, its novel part in their order.

    Predictions follow the pseudo-labels, and those follow the prior. Without a floor, a class that is empty once could
    never be found again.

    >>> import torch
    >>> moved_prior(torch.tensor([0.5, 0.5]), torch.tensor([0.9, 0.1]), num_seen=2)
    tensor([0.7000, 0.3000])
    >>> moved_prior(torch.tensor([0.5, 0.1, 0.4]), torch.tensor([0.5, 0.4, 0.1]), num_seen=1)
    tensor([0.5000, 0.4000, 0.1000])
    """
    ordered_K = order_prior(prior_K, predicted_K, num_seen)
    return with_floor(ordered_K + DAMPING * (predicted_K - ordered_K))


def with_floor(prior_K: Tensor) -> Tensor:
    """Return class proportions of which none is smaller than a hundredth of an equal proportion."""
    raised_K = prior_K.clamp(min=FLOOR / len(prior_K))
    return raised_K / raised_K.sum()
