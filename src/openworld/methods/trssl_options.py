"""Options of the paper's method. This module does not import torch."""

from dataclasses import dataclass

from openworld.core.errors import check
from openworld.methods.options import MethodOptions


@dataclass(frozen=True, kw_only=True)
class TrsslOptions(MethodOptions):
    """The paper's method. Each part that its ablations vary is an option."""

    needs = {"threshold": "mixed_labels", "mixup_alpha": "mixup", "uncertainty_from": "uncertainty"}

    threshold: float = 0.5
    """Probability from which the pseudo-label of a novel class becomes hard (one-hot)."""
    epsilon: float = 0.05
    """Softness of Sinkhorn's assignment (the paper's lambda). Above --temperature, novel classes are lost."""
    iterations: int = 3
    """Number of Sinkhorn iterations."""
    mixup_alpha: float = 0.75
    """Both parameters of the Beta distribution from which mixup's weight is sampled."""
    uncertainty_from: float = 0.0
    """Fraction of the run after which temperatures follow the uncertainty. Too early can cost accuracy on novel classes
    (docs/findings.md#finding-uncertainty-too-early)."""
    uncertainty: bool = True
    """Give each unlabelled sample a temperature that follows its uncertainty. Off: all use --temperature."""
    mixed_labels: bool = True
    """Make confident pseudo-labels of novel classes hard (one-hot). Off: all pseudo-labels stay soft."""
    cross_labels: bool = True
    """Train each view with the pseudo-label of the other view. Off: with its own."""
    mixup: bool = True
    """Train on mixtures of pairs of images (mixup). Off: on the images themselves."""

    def __post_init__(self):
        check(0 < self.threshold <= 1, "threshold", self.threshold, "above 0 and up to 1")
        check(self.epsilon > 0, "epsilon", self.epsilon, "above 0")
        check(self.iterations >= 1, "iterations", self.iterations, "1 or more")
        check(self.mixup_alpha > 0, "mixup_alpha", self.mixup_alpha, "above 0")
        check(0 <= self.uncertainty_from <= 1, "uncertainty_from", self.uncertainty_from, "from 0 to 1")

    @classmethod
    def method(cls):
        from openworld.methods.trssl import Trssl

        return Trssl
