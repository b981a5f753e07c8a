"""Muon (Jordan, 2024): the momentum of a weight matrix is made orthogonal before it is applied.

So no direction of a matrix lags behind those with large gradients. Here a matrix is turned and keeps its norm: behind
BatchNorm the norm says nothing, but where it grew, the same rate would turn the matrix less and less.

Shapes: S matrices of one shape in a stack, R rows (outputs), C columns (inputs; of a convolution, at every place).
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ITERATIONS = 5
POLYNOMIAL = 3.4445, -4.7750, 2.0315
"""What an iteration of Newton-Schulz makes of a singular value, by its powers 1, 3 and 5: steep at small ones."""


class Muon:
    """For weights of two dimensions or more. Those of one shape are a stack: one by one they would leave a GPU idle."""

    def __init__(self, named: dict[str, nn.Parameter]):
        self.stacks: dict[torch.Size, list[tuple[str, nn.Parameter]]] = defaultdict(list)
        for name, parameter in named.items():
            self.stacks[_matrix(parameter).shape].append((name, parameter))
        self.momenta = {
            shape: torch.zeros(len(members), *shape, device=members[0][1].device)
            for shape, members in self.stacks.items()
        }

    @torch.no_grad()
    def step(self, rate: Tensor, refused: Tensor) -> None:
        """Turn each matrix by `rate`, in shares of its norm. A step that is refused changes nothing."""
        for shape, members in self.stacks.items():
            parameters = [parameter for _, parameter in members]
            gradients = torch.stack([_matrix(parameter.grad) for parameter in parameters])
            weights = torch.stack([_matrix(parameter) for parameter in parameters])
            momentum = MOMENTUM * self.momenta[shape] + gradients
            moved = turned(weights, orthogonal(gradients + MOMENTUM * momentum), rate)
            self.momenta[shape].copy_(torch.where(refused, self.momenta[shape], momentum))
            for parameter, weight in zip(parameters, torch.where(refused, weights, moved), strict=True):
                parameter.copy_(_shaped_as(parameter, weight))

    def state(self) -> dict[str, Tensor]:
        """The momentum of each weight by its name."""
        return {
            name: _shaped_as(parameter, momentum)
            for shape, members in self.stacks.items()
            for (name, parameter), momentum in zip(members, self.momenta[shape], strict=True)
        }

    def load(self, state: dict[str, Tensor]) -> None:
        for name, momentum in self.state().items():
            if name in state:
                momentum.copy_(state[name])


def orthogonal(stack: Tensor) -> Tensor:
    """Nearly: each matrix keeps its singular vectors, and its singular values come to lie about 1."""
    is_tall = stack.shape[1] > stack.shape[2]
    x = stack.mT if is_tall else stack
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-12)
    if x.is_cuda:
        x = x.bfloat16()  # many times as fast; the values need not be exact
    linear, cubic, quintic = POLYNOMIAL
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), x, beta=linear)
    return (x.mT if is_tall else x).to(stack.dtype)


def turned(stack: Tensor, against: Tensor, rate: Tensor) -> Tensor:
    """Each matrix moved against a direction by a share of its norm, which it keeps."""
    norms = torch.linalg.matrix_norm(stack, keepdim=True)
    lengths = torch.linalg.matrix_norm(against, keepdim=True).clamp(min=1e-12)
    moved = stack - rate * norms / lengths * against
    return moved * (norms / torch.linalg.matrix_norm(moved, keepdim=True).clamp(min=1e-12))


def _matrix(weights: Tensor) -> Tensor:
    """A row for each output. Inputs come last, as they lie in memory: then nothing has to be moved."""
    return weights.movedim(1, -1).reshape(len(weights), -1)


def _shaped_as(weights: Tensor, matrix: Tensor) -> Tensor:
    """The inverse of `_matrix`."""
    return matrix.view(weights.movedim(1, -1).shape).movedim(-1, 1)
