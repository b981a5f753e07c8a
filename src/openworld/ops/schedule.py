"""The learning-rate schedule, the decay of the averaged weights, and the learning rates of single parameters."""

import math
from dataclasses import dataclass

from openworld.core.config import Training


def warmup_and_cosine(step: int, training: Training) -> float:
    """Return the learning rate of a step: a linear warm-up to `training.lr`, then a cosine to zero at the last step."""
    warmup_steps = training.warmup * training.steps
    if step < warmup_steps:
        return training.lr * (step + 1) / math.ceil(warmup_steps)
    progress = (step - warmup_steps) / (training.steps - warmup_steps)
    return training.lr * 0.5 * (1 + math.cos(math.pi * progress))


def averaging_decay(training: Training) -> float:
    """Return the decay of the averaged weights::

        decay = 1 - 1 / horizon
        horizon = min((1 - momentum) / (lr x weight decay), 40 / muon, steps) / 20, at least 1 step

    SGD with momentum replaces the weights in about (1 - momentum) / (lr x weight decay) steps. An average over more
    than a twentieth of that mixes networks that have little in common, and is not a working network. An average over
    more than a twentieth of the run lags behind the schedule. Muon rotates a matrix by at most its learning rate in a
    step. An average over a rotation of 1.7 radians worked, and 2 radians are allowed
    (docs/findings.md#finding-averaging-horizon).
    """
    turnover = (1 - training.momentum) / max(training.lr * training.weight_decay, 1e-12)
    turnover = min(turnover, 40 / max(training.muon, 1e-12))
    horizon = max(min(turnover, training.steps) / 20, 1.0)
    return 1 - 1 / horizon


@dataclass(frozen=True)
class Pace:
    """How fast a parameter is trained, as factors of the run's own settings."""

    rate: float = 1.0
    """Factor of the learning rate, for SGD and for Muon."""
    decay: float = 1.0
    """Factor of the weight decay."""
