"""What every method is: a head, a loss over a batch, and perhaps something to do once an epoch."""

from abc import ABC
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from openworld.core.config import Config, Training
from openworld.data.batches import Batch, Batches, Views
from openworld.data.problem import TrainingSet
from openworld.nets.heads import CosineHead
from openworld.nets.network import Network
from openworld.ops.schedule import Pace, warmup_and_cosine


@dataclass(frozen=True)
class StepResult:
    """A step's loss, and scalars worth a line in the record; both stay on the device."""

    loss: Tensor
    logs: dict[str, Tensor] = field(default_factory=dict)


class Method(nn.Module, ABC):
    """A method reads like its paper's algorithm box, and writes no device code.

    It builds the head of the network, and all weights that it trains are in there: so they are averaged, saved,
    exported and restarted with the network. It has no parameters of its own. What else must survive a checkpoint are
    its registered buffers, which are changed in place.

    On a GPU its loss is recorded once for all steps: what differs from step to step has to come in by the batch, by
    `draw` or by a buffer, and nothing may depend on a value that the host would have to wait for.
    """

    uses_labels = True
    """Whether labels reach its training; else labelled samples come among the others, without their labels."""
    makes_steps = True
    """Whether it is trained by steps; else `end_epoch`, which is then called once, makes all that answers."""
    uses_teacher = False
    """Whether its loss gets the averaged network, in training mode, as the keyword `teacher`."""
    fitted: tuple[str, ...] = ()
    """Tensors of the network (names, or how they begin), buffers too, that `end_epoch` sets, and the optimiser leaves
    alone. Their first values must be harmless: a run that is stopped before the first epoch's end answers with them."""
    helpers: tuple[str, ...] = ()
    """Tensors of the network (likewise) that are trained, but never take part in answers."""
    alternatives: tuple[str, ...] = ()
    """Tensors of the network (likewise) of which some answer and some do not, as `end_epoch` chose."""

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__()
        self.config = config

    @classmethod
    def build_head(cls, config: Config, width: int, num_seen: int, num_classes: int, source: Generator) -> nn.Module:
        """From features (B, width) to logits (B, num_classes), seen classes first, by which the network answers.

        Answers are softmax(logits / config.answers.temperature). A method that answers in its own way, by rejecting or
        by the nearest centre, does so here. In training mode forward must pass through every layer that may ever
        answer: there BatchNorm statistics are measured. By default cosines with one vector a class.
        """
        return CosineHead.drawn(width, num_classes, source)

    @classmethod
    def views(cls, config: Config) -> Views:
        """What it wants to see of a batch: by default one view of a labelled sample, two of an unlabelled one."""
        return Views() if cls.uses_labels else Views(labelled=())

    @classmethod
    def refuse(cls, config: Config, data: TrainingSet) -> None:
        """Raise a UserError if it cannot work on this data; called before anything is trained."""

    @classmethod
    def passes(cls, config: Config) -> float:
        """How often the end of an epoch shows all unlabelled samples to the network, about; time is planned by it."""
        return 0.0

    def begin(self, head: nn.Module, centres_KD: Tensor) -> None:
        """The features are good already: the head may begin with these directions of the classes."""
        if isinstance(head, CosineHead):
            head.weight.data.copy_(centres_KD)

    def pace(self, name: str) -> Pace | None:
        """How fast a parameter of the network is trained, by its name (`body.stem...`, `head...`); None: it is frozen.

        BatchNorm statistics of frozen layers still follow the batches.
        """
        return Pace()

    def learning_rate(self, step: int, training: Training) -> float:
        """Of a step, counted from 0."""
        return warmup_and_cosine(step, training)

    def draw(self, rows: int, step: int) -> tuple[Tensor, ...]:
        """What it draws for a step with so many views, on the CPU; given to the loss. By default nothing."""
        return ()

    def loss(self, network: Network, batch: Batch, *draws: Tensor) -> StepResult:
        """The loss of one step."""
        raise TypeError(f"{type(self).__name__} has no loss")

    @torch.no_grad()
    def end_epoch(self, average: Network, batches: Batches, step: int) -> None:
        """Called with the averaged network, as it answers, after every `epoch_steps` steps and at the end."""
