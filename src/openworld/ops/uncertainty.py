"""Uncertainty of a prediction over augmented views, and the softmax temperature that follows from it.

Shapes: V views, B samples, K classes, N samples in a whole set.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


@torch.no_grad()
def measure_uncertainty(
    random_logits: Callable[..., Tensor], chunks: Iterable[Tensor], num_views: int, temperature: float = 1.0
) -> Tensor:
    """Return the (N,) uncertainty of every sample of a set.

    Args:
        random_logits: `random_logits(samples, *counters)` returns the network's logits for one random view of each
            sample. Different counters give different views.
        chunks: the samples of the set, chunk by chunk.
        num_views: the number of views of each sample.
        temperature: the softmax temperature.
    """
    parts = []
    for number, samples_B in enumerate(chunks):
        logits = [random_logits(samples_B, number, view) for view in range(num_views)]
        parts.append(view_uncertainty(torch.stack(logits) / temperature))
    return torch.cat(parts)


def view_uncertainty(logits_VBK: Tensor) -> Tensor:
    """Return the (B,) standard deviation, over views, of the probability of each sample's most probable class::

        p[v, b] = softmax(logits[v, b])
        k[b] = argmax_k mean_v p[v, b, k]
        uncertainty[b] = std_v p[v, b, k[b]]

    Eq. 6 of the paper writes the variance of the probability vector. The authors' code takes the standard deviation for
    the most probable class only, and this function follows the code. If the logits are plain cosines, the probabilities
    are flat and the standard deviations are small. For this reason `temperatures` divides them by their maximum.
    """
    probabilities_VBK = logits_VBK.softmax(dim=2)
    most_probable_B = probabilities_VBK.mean(dim=0).argmax(dim=1)
    chosen_VB = probabilities_VBK.gather(2, most_probable_B.expand(len(logits_VBK), -1)[..., None])[..., 0]
    return chosen_VB.std(dim=0)


def temperatures(uncertainty_N: Tensor, floor: float) -> Tensor:
    """Return (N,) temperatures: the uncertainties of a whole set, divided by their maximum, clipped to [floor, 1]."""
    largest = uncertainty_N.max().clamp(min=1e-12)
    return (uncertainty_N / largest).clamp(floor, 1.0)
