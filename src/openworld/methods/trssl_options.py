"""Options of the paper's method. Free of torch."""

from dataclasses import dataclass

from openworld.core.errors import check
from openworld.methods.options import MethodOptions


@dataclass(frozen=True, kw_only=True)
class TrsslOptions(MethodOptions):
    """The paper's method: every part that its ablations turn."""

    needs = {"threshold": "mixed_labels", "mixup_alpha": "mixup", "uncertainty_from": "uncertainty"}

    threshold: float = 0.5
    """A novel class that holds this share of a pseudo-label takes it all."""
    epsilon: float = 0.05
    """Softness of Sinkhorn's assignment (the paper's lambda); above the temperature, novel classes are lost."""
    iterations: int = 3
    """Iterations of Sinkhorn."""
    mixup_alpha: float = 0.75
    """Both parameters of the Beta distribution of mixup's weight."""
    uncertainty_from: float = 0.0
    """Share of the run before temperatures follow the uncertainty: too early can cost novel classes (docs/log.md)."""
    uncertainty: bool = True
    """Temperatures of unlabelled samples follow their uncertainty; off: all have the temperature."""
    mixed_labels: bool = True
    """Confident novel pseudo-labels are hardened; off: all stay soft."""
    cross_labels: bool = True
    """Each view is labelled by the other; off: by itself."""
    mixup: bool = True
    """Train on mixed pairs; off: on the images themselves."""

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
