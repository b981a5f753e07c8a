"""The environment of a run: command, versions, device."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from openworld import __version__
from openworld.compute import compiling
from openworld.compute.device import describe


def environment(device: torch.device) -> dict[str, Any]:
    """Return the command, versions and hardware of this process, for environment.json."""
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "openworld": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": describe(device),
        "compiles": compiling.mode.is_on,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cpu_threads": torch.get_num_threads(),
        "cpu_count": os.cpu_count(),
    }
