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

    Its state, whatever must survive a checkpoint, is its registered buffers.
    """

    num_views: int
    """Views of each unlabelled sample that it wants in a batch."""

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__()

    @abstractmethod
    def loss(self, network: Network, batch: Batch) -> StepResult:
        """The loss of one step."""

    def end_epoch(self, average: Network, batches: Batches, step: int) -> None:
        """Called with the averaged network after every `epoch_steps` steps. By default nothing."""
