"""Muon (Jordan, 2024): the momentum of a weight matrix is made orthogonal before it is applied.

So no direction of a matrix lags behind those with large gradients. Here a matrix is turned and keeps its norm: behind
BatchNorm the norm says nothing, but where it grew, the same rate would turn the matrix less and less.

Shapes: S matrices in a stack, R rows, C columns. A matrix has a row for each output and a column for each input (of a
convolution, at every place); tall ones are transposed. Those with as many rows are a stack, filled up with columns of
zeros, which stay zeros: one by one, small matrices would leave a GPU idle.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ITERATIONS = 5
POLYNOMIAL = 3.4445, -4.7750, 2.0315
"""What an iteration of Newton-Schulz makes of a singular value, by its powers 1, 3 and 5: steep at small ones."""


class Muon:
    """For weights of two dimensions or more."""

    def __init__(self, named: dict[str, nn.Parameter]):
        self.momenta = {name: torch.zeros_like(weights, requires_grad=False) for name, weights in named.items()}
        self.stacks: dict[int, list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
        for name, weights in named.items():
            self.stacks[len(_matrix(weights))].append((weights, self.momenta[name]))

    @torch.no_grad()
    def step(self, rate: Tensor, refused: Tensor) -> None:
        """Turn each matrix by `rate`, in shares of its norm. A step that is refused changes none of them."""
        for members in self.stacks.values():
            all_weights, all_momenta = zip(*members, strict=True)
            gradients = [weights.grad for weights in all_weights]
            torch._foreach_mul_(all_momenta, MOMENTUM)
            torch._foreach_add_(all_momenta, gradients)
            ahead = torch._foreach_add(gradients, all_momenta, alpha=MOMENTUM)
            before = _stack(all_weights)
            after = torch.where(refused, before, turned(before, orthogonal(_stack(ahead)), rate))
            for weights, matrix in zip(all_weights, after, strict=True):
                weights.copy_(_weights(matrix, like=weights))

    def load(self, momenta: dict[str, Tensor]) -> None:
        for name in self.momenta.keys() & momenta.keys():
            self.momenta[name].copy_(momenta[name])


def orthogonal(stack: Tensor) -> Tensor:
    """Nearly: each matrix keeps its singular vectors, and its singular values come to lie about 1."""
    x = stack / torch.linalg.matrix_norm(stack, keepdim=True).clamp(min=1e-12)
    if x.is_cuda:
        x = x.bfloat16()  # many times as fast; the values need not be exact
    linear, cubic, quintic = POLYNOMIAL
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), x, beta=linear)
    return x.to(stack.dtype)


def turned(stack: Tensor, against: Tensor, rate: Tensor) -> Tensor:
    """Each matrix moved against a direction by a share of its norm, which it keeps."""
    norms, lengths = (torch.linalg.matrix_norm(each, keepdim=True) for each in (stack, against))
    moved = stack - rate * norms / lengths.clamp(min=1e-12) * against
    return moved * (norms / torch.linalg.matrix_norm(moved, keepdim=True).clamp(min=1e-12))


def _stack(tensors: Iterable[Tensor]) -> Tensor:
    matrices = [_matrix(tensor) for tensor in tensors]
    num_rows, num_columns = len(matrices[0]), max(matrix.shape[1] for matrix in matrices)
    stack = matrices[0].new_zeros(len(matrices), num_rows, num_columns)
    for place, matrix in zip(stack, matrices, strict=True):
        place[:, : matrix.shape[1]] = matrix
    return stack


def _matrix(weights: Tensor) -> Tensor:
    """Inputs come last, as they lie in memory."""
    matrix = weights.movedim(1, -1).flatten(1)
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT


def _weights(matrix: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_matrix`, of what may have been filled up."""
    shape = like.movedim(1, -1).shape
    is_tall = like.numel() < len(like) ** 2
    matrix = matrix[:, : like.numel() // len(matrix)]
    return (matrix.mT if is_tall else matrix).reshape(shape).movedim(-1, 1)
