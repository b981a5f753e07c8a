"""Measure how good features are: the accuracy of simple classifiers on them.

Shapes: N training samples and M test samples of D features, K classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

NEIGHBOURS = 20
"""Number of neighbours that vote."""
DECAY = 1e-5
"""Weight decay of the linear probe."""
ITERATIONS = 100
"""Maximum number of L-BFGS iterations of the linear probe."""
CHUNK = 4096
"""Number of test samples that are compared with all training samples at once."""


@torch.no_grad()
def neighbours_accuracy(train_ND: Tensor, labels_N: Tensor, test_MD: Tensor, truth_M: Tensor) -> float:
    """Return the k-nearest-neighbour accuracy in per cent.

    Samples are unit vectors. Each test sample is compared with all training samples by cosine. Its nearest neighbours
    vote for their class, and each vote counts by its cosine.
    """
    classes_NK = F.one_hot(labels_N).float()
    correct = 0
    for chunk_D, truth in zip(test_MD.split(CHUNK), truth_M.split(CHUNK), strict=True):
        nearest = (chunk_D @ train_ND.T).topk(min(NEIGHBOURS, len(train_ND)), dim=1)
        votes = (nearest.values[..., None] * classes_NK[nearest.indices]).sum(dim=1)
        correct += int((votes.argmax(dim=1) == truth).sum())
    return 100 * correct / len(truth_M)


def linear_probe_accuracy(train_ND: Tensor, labels_N: Tensor, test_MD: Tensor, truth_M: Tensor) -> float:
    """Return the accuracy of a linear probe in per cent.

    The probe is a logistic regression on the standardised features. L-BFGS minimises, over the weights and biases W::

        mean_n cross_entropy(logits[n], label[n]) + DECAY ||W||^2
    """
    mean, scale = train_ND.mean(dim=0), train_ND.std(dim=0).clamp(min=1e-6)
    train, test = (train_ND - mean) / scale, (test_MD - mean) / scale
    num_classes = int(labels_N.max()) + 1
    weights = torch.zeros(num_classes, train.shape[1] + 1, device=train.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def logits(features: Tensor) -> Tensor:
        return F.linear(features, weights[:, :-1], weights[:, -1])

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(logits(train), labels_N) + DECAY * weights.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    with torch.no_grad():
        return 100 * float((logits(test).argmax(dim=1) == truth_M).float().mean())
