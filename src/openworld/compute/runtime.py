"""Where and with what a command runs: nothing in here may change a run's numbers beyond rounding."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from openworld.core.errors import UserError, named
from openworld.core.places import count_cores, default_data_dir

MEMORY_SHARE = 0.5
"""Of the free memory of the device, this much may hold images; the rest is for the network and its work."""


@dataclass(frozen=True)
class Runtime:
    """The device, and how data gets to it."""

    device: torch.device
    data_dir: Path
    """The folder that holds the benchmarks."""
    workers: int = 0
    """Processes that decode images; with 0 this process does it."""
    memory: int = 2**62
    """Bytes of images that may stay on the device; a larger set is read anew for each batch."""
    compile: bool = False
    """Whether the work of a step is compiled: on a GPU it saves more than it costs."""
    deterministic: bool = False
    """Whether two runs give the same weights to the last bit, on a GPU too."""
    quiet: bool = False


def make_runtime(
    device: str = "auto",
    data_dir: Path | None = None,
    workers: int | None = None,
    compile: str = "auto",
    deterministic: bool = False,
    quiet: bool = False,
) -> Runtime:
    """The runtime of this machine, as far as it is not asked for otherwise."""
    picked = pick_device(device)
    if compile not in ("auto", "on", "off"):
        raise UserError(f"{named('compile', compile)}: there are auto, on and off")
    if deterministic and compile == "on":
        both = f"{named('deterministic')} and {named('compile', 'on')}"
        raise UserError(f"{both}: what is compiled is tuned by the clock; give one of them")
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
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"{named('device', name)}: there are auto, cpu and cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{named('device', 'cuda')}: torch sees no GPU here; use {named('device', 'cpu')}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:  # what Linux could free counts as free: it keeps files in memory as long as nobody wants it
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    try:  # a container may be allowed less
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        return max(0, min(free, limit - used))
    except (OSError, ValueError):
        return free
