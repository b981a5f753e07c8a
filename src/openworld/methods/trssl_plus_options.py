"""Options of our additions to the paper's method. This module does not import torch."""

from dataclasses import dataclass

from openworld.core.errors import UserError, check, named
from openworld.methods.trssl_options import TrsslOptions


@dataclass(frozen=True, kw_only=True)
class TrsslPlusOptions(TrsslOptions):
    """The paper's method with our additions. With all of them off, it is the paper's method."""

    needs = {**TrsslOptions.needs, "queue_from": "queue"}

    queue: int = 0
    """Number of logits of earlier batches, for each view, that Sinkhorn assigns together with the batch; 0: none."""
    queue_from: float = 0.2
    """Fraction of the run after which the queue is used, if it is full. Early logits would spoil the assignment."""
    shared_labels: bool = False
    """Give both views one pseudo-label, from the mean of their logits, which is more often correct than either."""
    strong_views: bool = False
    """Train on a second view that is augmented further after it got its pseudo-label."""
    balance: bool = False
    """Correct the logits in the loss for classes that are more frequent in a batch than in the data, because more of
    their samples are labelled."""

    def __post_init__(self):
        super().__post_init__()
        if self.shared_labels and not self.cross_labels:
            off = f"{named('cross_labels')} cannot be off while {named('shared_labels')} is on"
            raise UserError(f"{off}, because both views then share one pseudo-label; turn both off")
        check(self.queue >= 0, "queue", self.queue, "0 or more")
        check(0 <= self.queue_from <= 1, "queue_from", self.queue_from, "from 0 to 1")

    @classmethod
    def method(cls):
        from openworld.methods.trssl_plus import TrsslPlus

        return TrsslPlus
