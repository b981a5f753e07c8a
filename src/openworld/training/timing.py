"""How long work takes on a device."""

import statistics
import time
from collections.abc import Callable

import torch

from openworld.compute.device import synchronize

ROUNDS = 3


def seconds_of(work: Callable[[], object], device: torch.device, times: int = 1, rounds: int | None = None) -> float:
    """Return the seconds of one call: the median over rounds, each the mean of `times` calls in a row."""
    taken = []
    for _ in range(rounds or ROUNDS):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(times):
            work()
        synchronize(device)
        taken.append((time.perf_counter() - start) / times)
    return statistics.median(taken)
