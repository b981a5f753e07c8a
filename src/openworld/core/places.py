"""Where data and caches lie, and how many cores there are. Free of torch, for commands that answer at once."""

import os
from pathlib import Path


def default_data_dir() -> Path:
    """The folder of the benchmarks: $OPENWORLD_DATA, or a folder in the user's cache."""
    return Path(os.environ.get("OPENWORLD_DATA") or cache_dir() / "data")


def cache_dir() -> Path:
    """What can be made again lies here: decoded images, and what is known of files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openworld"


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
