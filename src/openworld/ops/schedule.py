"""The learning-rate schedule, the horizon of the averaged weights, and the pace of single parameters."""

import math
from dataclasses import dataclass

from openworld.core.config import Training


def warmup_and_cosine(step: int, training: Training) -> float:
    """Linear warm-up to the base rate, then a cosine to zero at the end of the run."""
    warmup_steps = training.warmup * training.steps
    if step < warmup_steps:
        return training.lr * (step + 1) / math.ceil(warmup_steps)
    progress = (step - warmup_steps) / (training.steps - warmup_steps)
    return training.lr * 0.5 * (1 + math.cos(math.pi * progress))


def averaging_decay(training: Training) -> float:
    """The decay of the averaged weights, from a horizon over which an average still is a network.

    SGD with momentum m turns the weights over in about (1 - m) / (lr x weight decay) steps. An average
    over more than a twentieth of that mixes networks that have little in common and is none itself
    (docs/log.md), and one over more than a twentieth of the run lags behind the schedule. Muon turns a matrix by no
    more than its rate in a step: an average over 1.7 radians was sound (docs/log.md), and two are allowed.
    """
    turnover = (1 - training.momentum) / max(training.lr * training.weight_decay, 1e-12)
    turnover = min(turnover, 40 / max(training.muon, 1e-12))
    horizon = max(min(turnover, training.steps) / 20, 1.0)
    return 1 - 1 / horizon


@dataclass(frozen=True)
class Pace:
    """How fast a parameter is trained, as factors of the run's own settings."""

    rate: float = 1.0
    """Of the learning rate, SGD's or Muon's."""
    decay: float = 1.0
    """Of the weight decay."""
