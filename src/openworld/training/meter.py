"""Means of the values that training steps log."""

from typing import Any

import torch
from torch import Tensor


class Meter:
    """Means of scalars over the steps of an epoch. Sums stay on the device; only `means` and `state` wait for it."""

    def __init__(self):
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, logs: dict[str, Tensor]) -> None:
        """Add the values of one step."""
        for name, value in logs.items():
            self.sums[name] = self.sums[name] + value.detach() if name in self.sums else value.detach().clone()
        self.count += 1

    def means(self) -> dict[str, float]:
        """Return the mean of each value over the steps so far."""
        return {name: float(value) / self.count for name, value in self.sums.items()}

    def state(self) -> dict[str, Any]:
        """Return the sums and the number of steps, for a checkpoint."""
        return {"sums": {name: float(value) for name, value in self.sums.items()}, "count": self.count}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore the state from a checkpoint."""
        self.sums = {name: torch.tensor(value, device=device) for name, value in state["sums"].items()}
        self.count = state["count"]
