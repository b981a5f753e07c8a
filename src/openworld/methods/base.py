"""What every method is: a loss over a batch, and perhaps something to do once an epoch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from torch import Tensor, nn

from openworld.config import Config
from openworld.data.batches import Batch, Batches
from openworld.data.problem import TrainingSet
from openworld.nets import Network


@dataclass(frozen=True)
class StepResult:
    """A step's loss, and scalars worth a line in the record; both stay on the device."""

    loss: Tensor
    logs: dict[str, Tensor] = field(default_factory=dict)


class Method(nn.Module, ABC):
    """A method reads like its paper's algorithm box, and writes no device code.

    Its state, whatever must survive a checkpoint, is its registered buffers, which are changed in place, and its
    parameters, which are trained together with the network's. On a GPU its
    loss is recorded once for all steps: what differs from step to step has to come in by the batch,
    by `draw` or by a buffer, and nothing may depend on a value that the host would have to wait for.
    """

    num_views: int
    """Views of each unlabelled sample that it wants in a batch."""
    uses_labels = True
    """Whether it wants labelled samples in a batch; else those come among the others, without their labels."""
    trains_head = True
    """Whether the head is trained by the loss; else `end_epoch` sets it."""

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__()

    def draw(self, rows: int, step: int) -> tuple[Tensor, ...]:
        """What it draws for a step with so many rows, on the CPU; given to the loss. By default nothing."""
        return ()

    @abstractmethod
    def loss(self, network: Network, batch: Batch, *draws: Tensor) -> StepResult:
        """The loss of one step."""

    def end_epoch(self, average: Network, batches: Batches, step: int) -> None:
        """Called with the averaged network after every `epoch_steps` steps."""
