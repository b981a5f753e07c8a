"""Class-distribution-aware assignment: pseudo-labels whose class shares follow a prior.

Shapes: B samples, K classes (seen first, then novel).
"""

from torch import Tensor

from openworld.compute.compiling import compilable


@compilable
def sinkhorn(
    logits_BK: Tensor, prior_K: Tensor, epsilon: float = 0.05, iterations: int = 3, weights_B: Tensor | None = None
) -> Tensor:
    """Assign samples to classes so that class k gets a share prior[k] of them.

    Solves, approximately after few iterations and exactly in the limit,

        max_A  <A, logits> + epsilon H(A)    with rows of A summing to 1 / B and column k to prior[k]

    and returns B * A, whose rows are probability distributions. Works on the dual potentials in the log
    domain and in float32, so that large logits and a small epsilon cannot overflow; a class with prior
    zero receives nothing. With weights, a row sums to its share of them instead of 1 / B: one of weight zero is
    assigned like the others, but does not count.

    >>> import torch
    >>> sinkhorn(torch.zeros(4, 2), torch.tensor([0.75, 0.25]))[0]
    tensor([0.7500, 0.2500])
    """
    scores_BK = logits_BK.float() / epsilon
    log_prior_K = prior_K.float().log()
    # Rows are shifted to a maximum of zero, for the sake of precision; the first potentials undo the shift.
    log_rows_B1 = scores_BK.amax(dim=1, keepdim=True)
    scores_BK = scores_BK - log_rows_B1
    log_weights_B1 = 0.0 if weights_B is None else weights_B[:, None].log()
    log_columns_K = log_prior_K
    for _ in range(iterations):
        log_columns_K = log_prior_K - (scores_BK + log_rows_B1 + log_weights_B1).logsumexp(dim=0)
        log_rows_B1 = -(scores_BK + log_columns_K).logsumexp(dim=1, keepdim=True)
    return (scores_BK + log_columns_K).softmax(dim=1)


def marginals(targets_BK: Tensor, weights_B: Tensor | None = None) -> Tensor:
    """The class shares of an assignment."""
    if weights_B is None:
        return targets_BK.mean(dim=0)
    return weights_B @ targets_BK / weights_B.sum()


def marginal_error(targets_BK: Tensor, prior_K: Tensor, weights_B: Tensor | None = None) -> Tensor:
    """How far the class shares of an assignment are from the prior: their total variation, 0 to 1."""
    return 0.5 * (marginals(targets_BK, weights_B) - prior_K).abs().sum()


def order_prior(prior_K: Tensor, marginals_K: Tensor, num_seen: int) -> Tensor:
    """Give the novel classes' shares to the novel outputs in the order of the outputs' own marginals.

    Which output will stand for which novel class is not known beforehand (the permutation of the paper's
    Section 3.1): the largest novel share goes to the novel output that is predicted most. Seen classes
    keep their place.

    >>> import torch
    >>> order_prior(torch.tensor([0.5, 0.1, 0.4]), torch.tensor([0.2, 0.6, 0.2]), num_seen=1)
    tensor([0.5000, 0.4000, 0.1000])
    """
    ordered_K = prior_K.clone()
    places = marginals_K[num_seen:].argsort(descending=True, stable=True)
    ordered_K[num_seen + places] = prior_K[num_seen:].sort(descending=True).values
    return ordered_K
