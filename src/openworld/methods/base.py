"""The base class of all methods: a method has a head, a loss over a batch, and optionally work once an epoch."""

from abc import ABC
from dataclasses import dataclass, field
from typing import Any

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
    """The loss of one step, and scalars to log. Both stay on the device."""

    loss: Tensor
    logs: dict[str, Tensor] = field(default_factory=dict)
    """Scalars by name. Their means over an epoch are written to `metrics.jsonl`."""


class Method(nn.Module, ABC):
    """A training method. Its code reads like the algorithm box of its paper and contains no device code.

    A method builds the head of the network. All weights that it trains must be in the head, so that the library can
    average, save, export and restore them with the network. The method itself must have no parameters. All other state
    that must survive a checkpoint must be in registered buffers of the method, and be changed in place.

    On a GPU the library records `loss` once and replays it for every step. So values that change from step to step must
    come from the batch, from `draw` or from a buffer, and nothing may depend on a value that the host has to wait for.
    """

    uses_labels = True
    """Whether `loss` uses labels. If False, labelled samples come among the unlabelled ones, without their labels."""
    makes_steps = True
    """Whether the method is trained in steps. If False, there is no training: the library calls `end_epoch` once, which
    must set everything that predicts."""
    uses_teacher = False
    """Whether `loss` gets the averaged network, in training mode, as the keyword argument `teacher`."""
    fitted: tuple[str, ...] = ()
    """Names, or beginnings of names, of tensors of the network (parameters or buffers) that `end_epoch` sets. The
    optimiser does not train them. `end_epoch` sets them in the averaged network, and the library copies them into the
    trained network. Their initial values must be harmless, because a run that is stopped before the end of the first
    epoch predicts with them."""
    helpers: tuple[str, ...] = ()
    """Names, or beginnings of names, of tensors of the network that are trained but take no part in predictions."""
    alternatives: tuple[str, ...] = ()
    """Names, or beginnings of names, of tensors of the network. `end_epoch` chooses which of these tensors predict."""

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__()
        self.config = config

    @classmethod
    def build_head(cls, config: Config, width: int, num_seen: int, num_classes: int, source: Generator) -> nn.Module:
        """Return the head. By default its logits are the cosines between the features and one vector per class.

        The head's `forward` takes features (B, width) and returns the logits (B, num_classes) from which the network
        predicts, seen classes first. Predictions are softmax(logits / config.answers.temperature). A method that
        predicts in its own way, such as by rejection or by the nearest centre, does so in `forward`. In training mode
        `forward` must pass through every layer that may ever predict, because the BatchNorm statistics of the averaged
        network are measured there.

        Args:
            config: The configuration of the run.
            width: Number of features.
            num_seen: Number of seen classes.
            num_classes: Number of classes, seen and novel together.
            source: Random generator for the initial weights. Do not use torch's global generator.
        """
        return CosineHead.drawn(width, num_classes, source)

    @classmethod
    def views(cls, config: Config) -> Views:
        """Return the views of a batch. By default one view of each labelled sample and two of each unlabelled one."""
        return Views() if cls.uses_labels else Views(labelled=())

    @classmethod
    def refuse(cls, config: Config, data: TrainingSet) -> None:
        """Raise a UserError if the method cannot work on this data. The library calls it before any training."""

    @classmethod
    def passes(cls, config: Config) -> float:
        """Return about how often `end_epoch` passes all unlabelled samples through the network, averaged over epochs.

        The library uses this number to plan how many steps fit into a given time.
        """
        return 0.0

    def begin(self, head: nn.Module, centres_KD: Tensor) -> None:
        """Initialise the head from the class centres of good features (`--start simclr`).

        By default a `CosineHead` starts from the centres, and any other head keeps its random initial weights.

        Args:
            head: The head of the network, or of the averaged network.
            centres_KD: One unit vector for each of the K classes, seen classes first.
        """
        if isinstance(head, CosineHead):
            head.weight.data.copy_(centres_KD)

    def assume(self, proportions_K: Tensor) -> None:
        """Use these class proportions of the unlabelled samples, which clusters have, in place of assumed ones."""

    def pace(self, name: str) -> Pace | None:
        """Return factors of the learning rate and weight decay for a parameter of the network; None freezes it.

        The name begins with the parameter's place: `body.stem...`, `head...`. The BatchNorm statistics of frozen layers
        still follow the batches.
        """
        return Pace()

    def learning_rate(self, step: int, training: Training) -> float:
        """Return the learning rate of a step. Steps are counted from 0."""
        return warmup_and_cosine(step, training)

    def draw(self, rows: int, step: int) -> tuple[Tensor, ...]:
        """Return the random tensors of a step, made on the CPU; `loss` gets them after the batch. By default none.

        Args:
            rows: Number of views in the batch, labelled and unlabelled together.
            step: Number of the step, counted from 0. With the seed it must decide the draws (`rng.generator`).
        """
        return ()

    def loss(self, network: Network, batch: Batch, *draws: Tensor) -> StepResult:
        """Return the loss of one step. `draws` are the tensors that `draw` returned."""
        raise TypeError(f"{type(self).__name__} has no loss")

    @torch.no_grad()
    def end_epoch(self, average: Network, batches: Batches, step: int) -> None:
        """Do the method's work once an epoch: after every `epoch_steps` steps and after the last step.

        Args:
            average: The averaged network in inference mode. Set `fitted` tensors here.
            batches: The source of batches; `batches.data` is the training set.
            step: Number of steps made so far.
        """

    def facts(self) -> dict[str, Any]:
        """Return what else to write into `metrics.jsonl` after each epoch, by name. By default nothing."""
        return {}
