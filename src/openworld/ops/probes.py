"""Accuracy of simple classifiers on features: how good the features are.

Shapes: N samples of D features, M samples to classify, K classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

NEIGHBOURS = 20


DECAY = 1e-5
"""Weight decay of the linear probe."""


ITERATIONS = 100


CHUNK = 4096


@torch.no_grad()
def neighbours_accuracy(known_ND: Tensor, labels_N: Tensor, judged_MD: Tensor, truth_M: Tensor) -> float:
    """Per cent of the judged samples whose class is that of most of their nearest neighbours, by cosine."""
    classes_NK = F.one_hot(labels_N).float()
    correct = 0
    for chunk_D, truth in zip(judged_MD.split(CHUNK), truth_M.split(CHUNK), strict=True):
        near = (chunk_D @ known_ND.T).topk(min(NEIGHBOURS, len(known_ND)), dim=1)
        votes = (near.values[..., None] * classes_NK[near.indices]).sum(dim=1)
        correct += int((votes.argmax(dim=1) == truth).sum())
    return 100 * correct / len(truth_M)


def linear_probe_accuracy(known_ND: Tensor, labels_N: Tensor, judged_MD: Tensor, truth_M: Tensor) -> float:
    """Per cent that a linear classifier gets right, trained on the features of samples whose class is known."""
    middle, scale = known_ND.mean(dim=0), known_ND.std(dim=0).clamp(min=1e-6)
    known, judged = (known_ND - middle) / scale, (judged_MD - middle) / scale
    num_classes = int(labels_N.max()) + 1
    weights = torch.zeros(num_classes, known.shape[1] + 1, device=known.device, requires_grad=True)
    search = torch.optim.LBFGS([weights], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def logits(features: Tensor) -> Tensor:
        return F.linear(features, weights[:, :-1], weights[:, -1])

    def loss() -> Tensor:
        search.zero_grad()
        value = F.cross_entropy(logits(known), labels_N) + DECAY * weights.square().sum()
        value.backward()
        return value

    search.step(loss)
    with torch.no_grad():
        return 100 * float((logits(judged).argmax(dim=1) == truth_M).float().mean())
