"""The folders of data and caches, and the number of cores. This module does not import torch."""

import os
from pathlib import Path


def default_data_dir() -> Path:
    """Return the folder of the benchmarks: $OPENWORLD_DATA, or a folder in the user's cache."""
    return Path(os.environ.get("OPENWORLD_DATA") or cache_dir() / "data")


def cache_dir() -> Path:
    """Return the cache folder. It holds only files that openworld can create again, such as decoded images."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openworld"


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
