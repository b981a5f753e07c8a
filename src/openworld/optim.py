"""From a loss to new weights: the schedule, the guarded update, and the averaged model."""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from openworld.compiling import plainly
from openworld.config import Training
from openworld.muon import Muon
from openworld.nets import CosineHead, Network


def warmup_and_cosine(step: int, training: Training) -> float:
    """Linear warm-up to the base rate, then a cosine to zero at the end of the run."""
    warmup_steps = training.warmup * training.steps
    if step < warmup_steps:
        return training.lr * (step + 1) / math.ceil(warmup_steps)
    progress = (step - warmup_steps) / (training.steps - warmup_steps)
    return training.lr * 0.5 * (1 + math.cos(math.pi * progress))


def averaging_decay(training: Training) -> float:
    """The decay of the averaged weights, from a horizon over which an average still is a network.

    SGD with momentum m turns the weights over in about (1 - m) / (lr x weight decay) steps. An average
    over more than a twentieth of that mixes networks that have little in common and is none itself
    (docs/log.md), and one over more than a twentieth of the run lags behind the schedule. Muon turns a matrix by no
    more than its rate in a step: an average over 1.7 radians was sound (docs/log.md), and two are allowed.
    """
    turnover = (1 - training.momentum) / max(training.lr * training.weight_decay, 1e-12)
    turnover = min(turnover, 40 / max(training.muon, 1e-12))
    horizon = max(min(turnover, training.steps) / 20, 1.0)
    return 1 - 1 / horizon


@dataclass(frozen=True)
class Pace:
    """How fast a parameter is trained, as factors of the run's own settings."""

    rate: float = 1.0
    """Of the learning rate, SGD's or Muon's."""
    decay: float = 1.0
    """Of the weight decay."""


class Optimiser:
    """SGD that refuses a step which is not finite, without asking the device about it at every step.

    Where the configuration says so, Muon takes the matrices; not those of cosine heads, whose rows are class centres.
    """

    def __init__(self, network: Network, training: Training, pace_of: Callable[[str], Pace | None]):
        """`pace_of` says how a parameter of the network is trained, by its name; None: not at all."""
        paces = {name: pace_of(name) for name, _ in network.named_parameters()}
        named = {name: p.requires_grad_(paces[name] is not None) for name, p in network.named_parameters()}
        named = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
        self.cosine_heads = [module for module in network.modules() if isinstance(module, CosineHead)]
        centres = {id(head.weight) for head in self.cosine_heads}
        matrices = {name: p for name, p in named.items() if p.dim() >= 2 and id(p) not in centres}
        turned = matrices if training.muon else {}
        self.parameters = list(named.values())
        self.plain = {name: p for name, p in named.items() if name not in turned}
        device = network.mean.device
        self.failed = torch.zeros((), device=device)
        self.failed_step = torch.zeros((), dtype=torch.int64, device=device)
        self.rates = {factor: torch.zeros((), device=device) for factor in {1.0, *(paces[name].rate for name in named)}}
        groups: dict[Pace, list[nn.Parameter]] = {}
        for name, parameter in self.plain.items():
            groups.setdefault(paces[name], []).append(parameter)
        by_pace = [
            {"params": group, "lr": self.rates[pace.rate], "weight_decay": training.weight_decay * pace.decay}
            for pace, group in groups.items()
        ]
        # the fused kernel takes `found_inf`, a flag on the device that voids the update
        self.sgd = torch.optim.SGD(by_pace, momentum=training.momentum, fused=True) if by_pace else None
        self.muon = Muon(turned, {name: paces[name].rate for name in turned})
        self.muon_share = training.muon / training.lr

    def update(self, loss: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        """From a loss to new weights; returns the gradient's norm."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        return self.descend(loss.detach(), rate, step)

    def descend(self, loss: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        """New weights. From the first loss or gradient that is not finite, no step counts."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        bad = ~(loss.isfinite() & norm.isfinite())
        self.failed_step.copy_(torch.where((self.failed == 0) & bad, step, self.failed_step))
        self.failed.copy_(torch.maximum(self.failed, bad.float()))
        for factor, own_rate in self.rates.items():
            own_rate.copy_(rate if factor == 1 else rate * factor)
        if self.sgd:
            self.sgd.found_inf = self.failed
            self.sgd.step()
        self.muon.step(self.rates[1.0] * self.muon_share, self.failed > 0)
        for head in self.cosine_heads:
            head.normalise()
        return norm

    def failure(self) -> int | None:
        """The step that was refused, if one was. Waits for the device."""
        return int(self.failed_step) if self.failed else None

    def state(self) -> dict[str, Tensor]:
        """The momentum of each parameter by its name."""
        moving = {name: self.sgd.state[p] for name, p in self.plain.items() if self.sgd and p in self.sgd.state}
        return {**{name: state["momentum_buffer"] for name, state in moving.items()}, **self.muon.momenta}

    def load(self, state: dict[str, Tensor]) -> None:
        self.muon.load(state)
        for name in self.plain.keys() & state.keys():
            parameter = self.plain[name]
            momentum = torch.empty_like(parameter, requires_grad=False)  # in the parameter's memory layout
            self.sgd.state[parameter]["momentum_buffer"] = momentum.copy_(state[name])


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
        with plainly():
            for images in batches:
                self.network(images)
        for norm, momentum in zip(self.norms, momenta, strict=True):  # without one, a teacher would wait for the device
            norm.momentum = momentum
        self.network.eval()
