"""The averaged model: an exponential moving average of the weights."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from openworld.compute.compiling import without_compiling
from openworld.core.config import Training
from openworld.nets.network import Network
from openworld.ops.schedule import averaging_decay


class Average:
    """The averaged model: an exponential moving average of the weights, for evaluation and for the uncertainty.

    Only weights are averaged. Other buffers of the head are copied from the trained network. The mean of BatchNorm
    statistics is not the statistics of the mean network, so `recalibrate` measures them again before the model is used.
    """

    def __init__(self, network: Network, training: Training):
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.decay = averaging_decay(training)
        self.norms = [m for m in self.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        statistics = {id(buffer) for norm in self.norms for buffer in norm.buffers()}
        self.copied = [name for name, buffer in self.network.head.named_buffers() if id(buffer) not in statistics]

    def share(self, step: int) -> float:
        """Return the weight of the trained network in the update of a step: 1 - decay, and more in the first steps."""
        return 1 - min(self.decay, (1 + step) / (10 + step))  # early weights are soon out of date

    @torch.no_grad()
    def update(self, network: Network, share: Tensor) -> None:
        """Move the average towards the trained network: average += share * (weights - average)."""
        averaged = list(self.network.parameters())
        moves = torch._foreach_sub(list(network.parameters()), averaged)
        torch._foreach_mul_(moves, share)
        torch._foreach_add_(averaged, moves)
        for name in self.copied:
            self.network.head.get_buffer(name).copy_(network.head.get_buffer(name))

    @torch.no_grad()
    def recalibrate(self, batches: Iterable[Tensor]) -> None:
        """Measure the BatchNorm statistics of the averaged weights on some batches of images."""
        momenta = [norm.momentum for norm in self.norms]
        for norm in self.norms:
            norm.reset_running_stats()
            norm.momentum = None  # torch then takes the plain mean over the batches
        self.network.train()
        with without_compiling():
            for images in batches:
                self.network(images)
        # A method may use the averaged model as a teacher in training mode. Without a momentum, BatchNorm would make
        # the host wait for the device there.
        for norm, momentum in zip(self.norms, momenta, strict=True):
            norm.momentum = momentum
        self.network.eval()
