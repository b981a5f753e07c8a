"""Options of SimCLR. This module does not import torch."""

from dataclasses import dataclass

from openworld.core.errors import check
from openworld.methods.options import MethodOptions


@dataclass(frozen=True, kw_only=True)
class SimclrOptions(MethodOptions):
    """SimCLR: features learnt without labels, clustered into classes."""

    recipe = "simclr"

    contrast_temperature: float = 0.2
    """Temperature of the contrastive loss."""
    projection: int = 128
    """Width of the projected features that the contrastive loss compares."""

    def __post_init__(self):
        check(self.contrast_temperature > 0, "contrast_temperature", self.contrast_temperature, "above 0")
        check(self.projection >= 2, "projection", self.projection, "2 or more")

    @classmethod
    def method(cls):
        from openworld.methods.simclr import Simclr

        return Simclr
