"""Muon (Jordan, 2024): the optimiser orthogonalises the momentum of a weight matrix before it applies it.

All directions of a matrix then move alike, also those with small gradients. Here Muon rotates a matrix and keeps its
norm. Behind BatchNorm the norm has no effect on the output. But if it grew, the same learning rate would rotate the
matrix less and less.

Shapes: S matrices in a stack, R rows, C columns. A matrix has a row for each output and a column for each input (in a
convolution, for each input and position of the kernel). Matrices with more rows than columns are transposed. Matrices
with the same number of rows are stacked and padded with columns of zeros, which stay zeros: small matrices, one by one,
would leave a GPU idle.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ITERATIONS = 5
"""Number of Newton-Schulz iterations."""
POLYNOMIAL = 3.4445, -4.7750, 2.0315
"""Coefficients of the powers 1, 3 and 5 by which an iteration changes each singular value. Small ones grow fast."""


class Muon:
    """Muon for weights of two dimensions or more. Each needs a gradient in every step. All-zero weights stay zero."""

    def __init__(self, named: dict[str, nn.Parameter], factors: dict[str, float] | None = None):
        """Set up the stacks.

        Args:
            named: the weights by name.
            factors: factors of the learning rate by name; 1 for all others.
        """
        factors = dict.fromkeys(named, 1.0) | (factors or {})
        self.momenta = {name: torch.zeros_like(weights, requires_grad=False) for name, weights in named.items()}
        by_rows: dict[int, list[str]] = defaultdict(list)
        for name, weights in named.items():
            by_rows[_num_rows(weights)].append(name)
        self.stacks = [
            Stack(*([each[name] for name in names] for each in (named, self.momenta, factors)))
            for names in by_rows.values()
        ]

    @torch.no_grad()
    def step(self, rate: Tensor, refused: Tensor) -> None:
        """Rotate each matrix by `rate`, relative to its norm.

        If `refused` is true, no weight changes, but the momenta are no longer usable.
        """
        for stack in self.stacks:
            stack.step(rate, refused)

    def load(self, momenta: dict[str, Tensor]) -> None:
        """Restore the momenta from a checkpoint."""
        for name in self.momenta.keys() & momenta.keys():
            self.momenta[name].copy_(momenta[name])


class Stack:
    """Weights whose matrices have the same number of rows. A step makes few passes over memory, its main cost."""

    def __init__(self, weights: list[nn.Parameter], momenta: list[Tensor], factors: list[float]):
        self.weights, self.momenta = weights, momenta
        num_rows, largest = _num_rows(weights[0]), max(each.numel() for each in weights)
        device = weights[0].device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32  # on a GPU much faster, and precise enough
        self.factors = None if set(factors) == {1.0} else torch.tensor(factors, device=device)
        self.filled = torch.zeros(len(weights), num_rows, largest // num_rows, dtype=dtype, device=device)

    def step(self, rate: Tensor, refused: Tensor) -> None:
        gradients = [weights.grad for weights in self.weights]
        torch._foreach_lerp_(self.momenta, gradients, 1 - MOMENTUM)
        nesterov = torch._foreach_lerp(gradients, self.momenta, MOMENTUM)
        torch._foreach_copy_(self.views(self.filled), nesterov)
        directions = orthogonal(self.filled.masked_fill_(refused, 0))
        norms, lengths = self.norms(), torch.linalg.matrix_norm(directions)
        rate = rate if self.factors is None else rate * self.factors
        moves = (-rate * norms / lengths.clamp(min=1e-12)).masked_fill(refused, 0)
        for weights, direction, move in zip(self.weights, self.views(directions), moves, strict=True):
            weights.addcmul_(direction, move)
        torch._foreach_mul_(self.weights, list(norms / self.norms().clamp(min=1e-12)))

    def norms(self) -> Tensor:
        """Return the (S,) norms of the weights."""
        return torch.stack(torch._foreach_norm(self.weights))

    def views(self, stack: Tensor) -> list[Tensor]:
        """Return views of the matrices of a stack, each without its padding and in the shape of its weights."""
        return [_as_weights(matrix, like) for matrix, like in zip(stack, self.weights, strict=True)]


def orthogonal(stack: Tensor) -> Tensor:
    """Make each (R, C) matrix of a stack nearly orthogonal, by Newton-Schulz iterations.

    A matrix keeps its singular vectors, and its singular values become about 1. An iteration is, with the coefficients
    a, b, c of `POLYNOMIAL`::

        X <- (a I + b X X^T + c (X X^T)^2) X
    """
    x = stack / torch.linalg.matrix_norm(stack, keepdim=True).clamp(min=1e-12)
    linear, cubic, quintic = POLYNOMIAL
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        factors = torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic)
        factors.diagonal(dim1=1, dim2=2).add_(linear)
        x = factors @ x
    return x


def _num_rows(weights: Tensor) -> int:
    return min(len(weights), weights.numel() // len(weights))


def _as_weights(matrix: Tensor, like: Tensor) -> Tensor:
    """Return a view of a padded matrix in the shape of the weights `like`. Inputs come last in it, as in memory."""
    matrix = matrix[:, : like.numel() // len(matrix)]
    by_output = matrix if len(matrix) == len(like) else matrix.mT
    return by_output.unflatten(1, like.movedim(1, -1).shape[1:]).movedim(-1, 1)
