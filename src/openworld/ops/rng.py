"""The only source of randomness: every draw is a function of (seed, purpose, counters).

Nothing is carried from one draw to the next, so the step number *is* the random state: a run that was
stopped and resumed draws exactly what it would have drawn.
"""

import hashlib

import torch


def derived_seed(seed: int, purpose: str, *counters: int) -> int:
    """63 bits that depend on every argument, the same on every machine and in every release.

    >>> derived_seed(0, "mixup", 7) == derived_seed(0, "mixup", 7) != derived_seed(0, "mixup", 8)
    True
    """
    key = "/".join(map(str, (seed, purpose, *counters)))
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1


def generator(seed: int, purpose: str, *counters: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh torch generator for one purpose at one point of a run."""
    return torch.Generator(device).manual_seed(derived_seed(seed, purpose, *counters))
