"""The optimiser: from a loss to new weights, by SGD and Muon, with a guard against values that are not finite."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from openworld.core.config import Training
from openworld.nets.heads import CosineHead
from openworld.nets.network import Network
from openworld.ops.schedule import Pace
from openworld.training.muon import Muon


class Optimiser:
    """SGD, which stops updating the weights at the first loss or gradient that is not finite.

    The check stays on the device, so the host does not wait at every step. If `training.muon` is set, Muon trains the
    matrices instead, except those of cosine heads, whose rows are class centres.
    """

    def __init__(self, network: Network, training: Training, pace_of: Callable[[str], Pace | None]):
        """Set up SGD and Muon for the parameters of the network.

        Args:
            network: the network to train.
            training: the settings of the run.
            pace_of: returns the pace of a parameter by its name; None freezes the parameter.
        """
        paces = {name: pace_of(name) for name, _ in network.named_parameters()}
        named = {name: p.requires_grad_(paces[name] is not None) for name, p in network.named_parameters()}
        named = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
        self.cosine_heads = [module for module in network.modules() if isinstance(module, CosineHead)]
        centres = {id(head.weight) for head in self.cosine_heads}
        matrices = {name: p for name, p in named.items() if p.dim() >= 2 and id(p) not in centres}
        by_muon = matrices if training.muon else {}
        self.parameters = list(named.values())
        self.by_sgd = {name: p for name, p in named.items() if name not in by_muon}
        device = network.mean.device
        self.failed = torch.zeros((), device=device)
        self.failed_step = torch.zeros((), dtype=torch.int64, device=device)
        self.rates = {factor: torch.zeros((), device=device) for factor in {1.0, *(paces[name].rate for name in named)}}
        groups: dict[Pace, list[nn.Parameter]] = {}
        for name, parameter in self.by_sgd.items():
            groups.setdefault(paces[name], []).append(parameter)
        sgd_groups = [
            {"params": group, "lr": self.rates[pace.rate], "weight_decay": training.weight_decay * pace.decay}
            for pace, group in groups.items()
        ]
        # The fused kernel skips the update if its flag `found_inf`, a tensor on the device, is set; not on Apple's GPU
        self.is_fused = device.type != "mps"
        fused = {"fused": True} if self.is_fused else {"foreach": False}
        self.sgd = torch.optim.SGD(sgd_groups, momentum=training.momentum, **fused) if sgd_groups else None
        self.muon = Muon(by_muon, {name: paces[name].rate for name in by_muon})
        self.muon_over_lr = training.muon / training.lr

    def update(self, loss: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        """Compute the gradients of the loss and update the weights. Return the norm of the gradient."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        return self.descend(loss.detach(), rate, step)

    def descend(self, loss: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        """Update the weights with the present gradients. Return the norm of the gradient.

        After the first loss or gradient that is not finite, this step and all later ones change nothing.
        """
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        is_bad = ~(loss.isfinite() & norm.isfinite())
        self.failed_step.copy_(torch.where((self.failed == 0) & is_bad, step, self.failed_step))
        self.failed.copy_(torch.maximum(self.failed, is_bad.float()))
        for factor, scaled_rate in self.rates.items():
            scaled_rate.copy_(rate if factor == 1 else rate * factor)
        if self.sgd and self.is_fused:
            self.sgd.found_inf = self.failed
            self.sgd.step()
        elif self.sgd and not self.failed:  # the host waits for the device here
            self.sgd.step()
        self.muon.step(self.rates[1.0] * self.muon_over_lr, self.failed > 0)
        for head in self.cosine_heads:
            head.normalise()
        return norm

    def failure(self) -> int | None:
        """Return the first step with a value that was not finite, or None. The host waits for the device."""
        return int(self.failed_step) if self.failed else None

    def state(self) -> dict[str, Tensor]:
        """Return the momentum of each parameter by its name, for a checkpoint."""
        states = {name: self.sgd.state[p] for name, p in self.by_sgd.items() if self.sgd and p in self.sgd.state}
        return {**{name: state["momentum_buffer"] for name, state in states.items()}, **self.muon.momenta}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore the momenta from a checkpoint."""
        self.muon.load(state)
        for name in self.by_sgd.keys() & state.keys():
            parameter = self.by_sgd[name]
            momentum = torch.empty_like(parameter, requires_grad=False)  # in the parameter's memory layout
            self.sgd.state[parameter]["momentum_buffer"] = momentum.copy_(state[name])
