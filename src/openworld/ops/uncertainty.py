"""How much a prediction changes over augmented views, and the temperature that follows from it.

Shapes: V views, B samples, K classes.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


@torch.no_grad()
def measure_uncertainty(
    random_answer: Callable[..., Tensor], chunks: Iterable[Tensor], num_views: int, temperature: float = 1.0
) -> Tensor:
    """The uncertainty of every sample of a set.

    `random_answer(samples, *counters)` gives the logits of a network for one random view of each sample.
    """
    parts = []
    for number, samples_B in enumerate(chunks):
        logits = [random_answer(samples_B, number, view) for view in range(num_views)]
        parts.append(view_uncertainty(torch.stack(logits) / temperature))
    return torch.cat(parts)


def view_uncertainty(logits_VBK: Tensor) -> Tensor:
    """The deviation, over views, of the probability of each sample's mean-favourite class.

    Eq. 6 of the paper writes the variance of the probability vector; its authors' code takes the standard
    deviation for the one class that counts, and so do we. On plain cosines the probabilities are flat and
    the deviations small, which is why `temperatures` scales them by their maximum.
    """
    probabilities_VBK = logits_VBK.softmax(dim=2)
    favourite_B = probabilities_VBK.mean(dim=0).argmax(dim=1)
    chosen_VB = probabilities_VBK.gather(2, favourite_B.expand(len(logits_VBK), -1)[..., None])[..., 0]
    return chosen_VB.std(dim=0)


def temperatures(uncertainty_N: Tensor, floor: float) -> Tensor:
    """Uncertainties of a whole set, scaled so that the largest is 1 and clipped to [floor, 1]."""
    largest = uncertainty_N.max().clamp(min=1e-12)
    return (uncertainty_N / largest).clamp(floor, 1.0)
