"""From a loss to new weights: the schedule, the guarded update, and the averaged model."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from openworld.core.config import Training
from openworld.nets.heads import CosineHead
from openworld.nets.network import Network
from openworld.ops.schedule import Pace
from openworld.training.muon import Muon


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
