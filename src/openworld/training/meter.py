"""Means of what a training step logs."""

from typing import Any

import torch
from torch import Tensor


class Meter:
    """Means of scalars over the steps of an epoch. The sums stay on the device; only `means` waits for it."""

    def __init__(self):
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, logs: dict[str, Tensor]) -> None:
        for name, value in logs.items():
            self.sums[name] = self.sums[name] + value.detach() if name in self.sums else value.detach().clone()
        self.count += 1

    def means(self) -> dict[str, float]:
        return {name: float(value) / self.count for name, value in self.sums.items()}

    def state(self) -> dict[str, Any]:
        return {"sums": {name: float(value) for name, value in self.sums.items()}, "count": self.count}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        self.sums = {name: torch.tensor(value, device=device) for name, value in state["sums"].items()}
        self.count = state["count"]
