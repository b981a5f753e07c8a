"""The guard of a run that begins with clusters of good features: it never ends worse than it began.

Truth is unknown, so what is compared is the agreement between views of samples that training does not use.
"""

import math

import torch
from torch import nn

from openworld.core.progress import ProgressDisplay
from openworld.data.batches import Batches
from openworld.ops.agreement import kappa
from openworld.runs.folder import RunFolder

VIEWS = 8
"""Number of random views that are compared with the plain one."""


@torch.no_grad()
def agreement(network: nn.Module, batches: Batches) -> float | None:
    """Return the mean agreement (Cohen's kappa) between the plain view and random views of the held-out samples.

    Return None if there are too few samples to hold any out. The network must be in evaluation mode.
    """
    if not len(batches.held_out):
        return None
    predict_view, found = batches.view_predictor(network, "agreement", 0), []
    for number, positions in enumerate(batches.held_out.split(batches.rows_at_once)):
        samples = batches.data.unlabelled.take(positions)
        plain = network(batches.data.family.plain(samples)).argmax(dim=1)
        found.append(torch.stack([plain, *(predict_view(samples, number, v).argmax(dim=1) for v in range(VIEWS))]))
    plain, *views = torch.cat(found, dim=1).cpu()
    return sum(kappa(plain, view) for view in views) / VIEWS


def standard_error(proportion: float, count: int) -> float:
    """Return how far a proportion among this many samples is from the truth by chance."""
    return math.sqrt(max(proportion * (1 - proportion), 0.0) / count)


def training_spoilt(run: RunFolder, num_held_out: int, display: ProgressDisplay) -> bool:
    """Return whether the agreement is clearly lower now than it was with the first clusters, and tell the user."""
    lines = run.metrics()
    first = next((line["agreement"] for line in lines if line["step"] == 0), None)
    last = lines[-1]["agreement"]
    if first is None or last >= first - standard_error((first + last) / 2, num_held_out):
        return False
    display.warn(
        "training made the predictions less stable, so the run keeps the clusters that it began with (agreement "
        f"between views of held-out samples: {first:.3f} before, {last:.3f} after)"
    )
    return True
