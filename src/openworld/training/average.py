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
    """The averaged model: a running mean of the weights, for evaluation and for the uncertainty.

    Only weights are averaged; what a head keeps in buffers is taken over as it is. Means of BatchNorm statistics are
    not the statistics of the mean network, so they are measured afresh (`recalibrate`) before the model is used.
    """

    def __init__(self, network: Network, training: Training):
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.decay = averaging_decay(training)
        self.norms = [m for m in self.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        measured = {id(buffer) for norm in self.norms for buffer in norm.buffers()}
        self.taken_over = [name for name, buffer in self.network.head.named_buffers() if id(buffer) not in measured]

    def share(self, step: int) -> float:
        """By how much the average moves towards the weights of a step."""
        return 1 - min(self.decay, (1 + step) / (10 + step))  # young weights soon are no use

    @torch.no_grad()
    def update(self, network: Network, share: Tensor) -> None:
        mine = list(self.network.parameters())
        moves = torch._foreach_sub(list(network.parameters()), mine)
        torch._foreach_mul_(moves, share)
        torch._foreach_add_(mine, moves)
        for name in self.taken_over:
            self.network.head.get_buffer(name).copy_(network.head.get_buffer(name))

    @torch.no_grad()
    def recalibrate(self, batches: Iterable[Tensor]) -> None:
        """Measure the BatchNorm statistics of the averaged weights on some batches of images."""
        momenta = [norm.momentum for norm in self.norms]
        for norm in self.norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean over the batches
        self.network.train()
        with without_compiling():
            for images in batches:
                self.network(images)
        for norm, momentum in zip(self.norms, momenta, strict=True):  # without one, a teacher would wait for the device
            norm.momentum = momentum
        self.network.eval()
