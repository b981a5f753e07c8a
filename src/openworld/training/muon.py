"""Muon (Jordan, 2024): the momentum of a weight matrix is made orthogonal before it is applied.

So no direction of a matrix lags behind those with large gradients. Here a matrix is turned and keeps its norm: behind
BatchNorm the norm says nothing, but where it grew, the same rate would turn the matrix less and less.

Shapes: S matrices in a stack, R rows, C columns. A matrix has a row for each output and a column for each input (of a
convolution, at every place); tall ones are transposed. Those with as many rows are a stack, filled up with columns of
zeros, which stay zeros: one by one, small matrices would leave a GPU idle.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ITERATIONS = 5
POLYNOMIAL = 3.4445, -4.7750, 2.0315
"""What an iteration of Newton-Schulz makes of a singular value, by its powers 1, 3 and 5: steep at small ones."""


class Muon:
    """For weights of two dimensions or more, each of which has a gradient in every step; what is all zeros stays so."""

    def __init__(self, named: dict[str, nn.Parameter], factors: dict[str, float] | None = None):
        """Of each matrix `factors` tells by how much its rate differs from that of a step."""
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
        """Turn each matrix by `rate`, in shares of its norm. If the step is refused, none; momenta are spoilt then."""
        for stack in self.stacks:
            stack.step(rate, refused)

    def load(self, momenta: dict[str, Tensor]) -> None:
        for name in self.momenta.keys() & momenta.keys():
            self.momenta[name].copy_(momenta[name])


class Stack:
    """Weights whose matrices have as many rows. Written for few passes over memory, which are what it costs."""

    def __init__(self, weights: list[nn.Parameter], momenta: list[Tensor], factors: list[float]):
        self.weights, self.momenta = weights, momenta
        num_rows, most = _num_rows(weights[0]), max(each.numel() for each in weights)
        device = weights[0].device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32  # many times as fast, and exact enough
        self.factors = None if set(factors) == {1.0} else torch.tensor(factors, device=device)
        self.filled = torch.zeros(len(weights), num_rows, most // num_rows, dtype=dtype, device=device)

    def step(self, rate: Tensor, refused: Tensor) -> None:
        gradients = [weights.grad for weights in self.weights]
        torch._foreach_lerp_(self.momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, self.momenta, MOMENTUM)
        torch._foreach_copy_(self.places(self.filled), ahead)
        directions = orthogonal(self.filled.masked_fill_(refused, 0))
        norms, lengths = self.norms(), torch.linalg.matrix_norm(directions)
        rate = rate if self.factors is None else rate * self.factors
        moves = (-rate * norms / lengths.clamp(min=1e-12)).masked_fill(refused, 0)
        for weights, direction, move in zip(self.weights, self.places(directions), moves, strict=True):
            weights.addcmul_(direction, move)
        torch._foreach_mul_(self.weights, list(norms / self.norms().clamp(min=1e-12)))

    def norms(self) -> Tensor:
        return torch.stack(torch._foreach_norm(self.weights))

    def places(self, stack: Tensor) -> list[Tensor]:
        """Views of a stack's matrices, each in the shape of its weights."""
        return [_as_weights(matrix, like) for matrix, like in zip(stack, self.weights, strict=True)]


def orthogonal(stack: Tensor) -> Tensor:
    """Nearly: each matrix keeps its singular vectors, and its singular values come to lie about 1."""
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
    """What a matrix holds before it was filled up; inputs come last, as they lie in memory."""
    matrix = matrix[:, : like.numel() // len(matrix)]
    by_output = matrix if len(matrix) == len(like) else matrix.mT
    return by_output.unflatten(1, like.movedim(1, -1).shape[1:]).movedim(-1, 1)
