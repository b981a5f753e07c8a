"""Options of what we added to the paper's method. Free of torch."""

from dataclasses import dataclass

from openworld.core.errors import UserError, check, named
from openworld.methods.trssl_options import TrsslOptions


@dataclass(frozen=True, kw_only=True)
class TrsslPlusOptions(TrsslOptions):
    """The paper's method, and what we added to it; with all of these off it is the paper's."""

    needs = {**TrsslOptions.needs, "queue_from": "queue"}

    queue: int = 0
    """Earlier logits of each view that Sinkhorn assigns together with the batch's own."""
    queue_from: float = 0.2
    """Share of the run before the queue is used, once it is full: logits of a young network spoil the assignment."""
    shared_labels: bool = False
    """Both views get one pseudo-label, from the mean of their logits, which errs less than either."""
    strong_views: bool = False
    """Train on second views that are changed further once they have their pseudo-label."""
    balance: bool = False
    """Add to the logits how much more often a batch shows each class than the set does: more labels, more rows."""

    def __post_init__(self):
        super().__post_init__()
        if self.shared_labels and not self.cross_labels:
            off, way_out = named("no_cross_labels"), named("no_shared_labels")
            raise UserError(f"{off} does nothing where both views share one label: add {way_out}")
        check(self.queue >= 0, "queue", self.queue, "0 or more")
        check(0 <= self.queue_from <= 1, "queue_from", self.queue_from, "from 0 to 1")

    @classmethod
    def method(cls):
        from openworld.methods.trssl_plus import TrsslPlus

        return TrsslPlus
