"""How far two predictions of the same samples agree. Shapes: N samples, K classes."""

import torch
from torch import Tensor


def kappa(first_N: Tensor, second_N: Tensor) -> float:
    """Return Cohen's kappa of two predictions of the classes of N samples::

        kappa = (agreement - chance) / (1 - chance)
        agreement = mean_n [first[n] = second[n]]
        chance = sum_k mean_n [first[n] = k] mean_n [second[n] = k]

    It is 1 if they are equal, and 0 if they agree as often as by chance, also where nearly all samples have one class.

    >>> kappa(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 0]))
    0.5
    """
    num_classes = int(torch.stack([first_N, second_N]).max()) + 1
    shares_2K = torch.stack([torch.bincount(each, minlength=num_classes) for each in (first_N, second_N)]) / len(
        first_N
    )
    chance = float((shares_2K[0] * shares_2K[1]).sum())
    agreement = float((first_N == second_N).float().mean())
    return 1.0 if chance == 1 else (agreement - chance) / (1 - chance)
