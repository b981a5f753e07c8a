"""How long something takes on a device."""

import statistics
import time
from collections.abc import Callable

import torch

from openworld.engine import wait_for

ROUNDS = 3


def seconds_of(work: Callable[[], object], device: torch.device, times: int = 1, rounds: int | None = None) -> float:
    """Of one piece of work: the median over rounds of so many in a row, which is how training does them."""
    taken = []
    for _ in range(rounds or ROUNDS):
        wait_for(device)
        start = time.perf_counter()
        for _ in range(times):
            work()
        wait_for(device)
        taken.append((time.perf_counter() - start) / times)
    return statistics.median(taken)
