"""The machine on which a command runs: device, workers, memory. None of it changes a run's numbers beyond rounding."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from openworld.core.config import DEVICES
from openworld.core.errors import UserError, named
from openworld.core.places import count_cores, default_data_dir

MEMORY_SHARE = 0.5
"""Proportion of the free memory of the device that images may use. The rest is for the network and its work."""


@dataclass(frozen=True)
class Runtime:
    """The device, and how data gets to it."""

    device: torch.device
    data_dir: Path
    """The folder that holds the benchmarks."""
    workers: int = 0
    """Number of processes that decode images. With 0, the main process decodes them."""
    memory: int = 2**62
    """Bytes of images that may stay on the device. A larger set is read again for each batch."""
    compile: bool = False
    """Whether the training step is compiled. On a GPU this saves more time than it costs."""
    deterministic: bool = False
    """Whether two runs give the same weights to the last bit, also on a GPU."""
    quiet: bool = False
    """Whether to print no progress."""


def make_runtime(
    device: str = "auto",
    data_dir: Path | None = None,
    workers: int | None = None,
    compile: str = "auto",
    deterministic: bool = False,
    quiet: bool = False,
) -> Runtime:
    """Return the runtime of this machine. Arguments replace what is chosen automatically.

    By default, the device is a GPU if there is one, there is a worker for each core, and the training step is compiled
    on a CUDA GPU unless `deterministic` is set.
    """
    picked = pick_device(device)
    if compile not in ("auto", "on", "off"):
        raise UserError(f"{named('compile', compile)}: unknown value; use auto, on or off")
    if deterministic and compile == "on":
        both = f"{named('deterministic')} and {named('compile', 'on')}"
        raise UserError(f"{both} exclude each other: compiled code depends on timings. Use only one of them")
    if picked.type == "mps" and compile == "on":
        raise UserError(f"{named('compile', 'on')} does not work on Apple's GPU; leave it out")
    return Runtime(
        device=picked,
        data_dir=data_dir or default_data_dir(),
        workers=count_cores() if workers is None else workers,
        memory=int(free_memory(picked) * MEMORY_SHARE),
        compile=compile == "on" or (compile == "auto" and picked.type == "cuda" and not deterministic),
        deterministic=deterministic,
        quiet=quiet,
    )


def pick_device(name: str) -> torch.device:
    """Return the device. `auto` is a CUDA GPU, else Apple's GPU (mps), else the CPU.

    Raise a UserError if torch does not find the device.
    """
    if name not in DEVICES:
        raise UserError(f"{named('device', name)}: unknown device; use {', '.join(DEVICES[:-1])} or {DEVICES[-1]}")
    is_there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, available in is_there.items() if available)
    if not is_there[name]:
        raise UserError(f"{named('device', name)}: torch finds no such GPU; use {named('device', 'cpu')}")
    return torch.device(name)


def free_memory(device: torch.device) -> int:
    """Return the number of bytes that are free on the device now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    try:  # MemAvailable includes the file cache, which Linux frees on demand
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = _half_of_physical_memory()
    try:  # the limit of a container may be lower
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        return max(0, min(free, limit - used))
    except (OSError, ValueError):
        return free


def _half_of_physical_memory() -> int:
    """Return half of the machine's memory if the system reports it, else 2 GiB."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError):  # Windows has no sysconf
        return 2 * 2**30
