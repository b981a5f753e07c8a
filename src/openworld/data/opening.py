"""Open a data set from the name of a benchmark, or the path of a folder, a manifest or an .npz file."""

from pathlib import Path

from openworld.core.errors import UserError, did_you_mean
from openworld.data.benchmarks import BENCHMARKS, read_benchmark
from openworld.data.dataset import Dataset
from openworld.data.own import read_own

IN_MEMORY = "memory:"
"""Prefix of the data's name in a run on arrays, DataFrames or datasets from Python, which have no path."""


def stable_name(data: str) -> str:
    """Return a name for the same data that is valid in every working directory: paths become absolute."""
    return data if data in BENCHMARKS or not Path(data).exists() else str(Path(data).absolute())


def reopen_dataset(data: str, data_dir: Path) -> Dataset:
    """Open the data of a run. If its path no longer exists, the error says how to name the new one."""
    try:
        return open_dataset(data, data_dir)
    except UserError as error:
        if data in BENCHMARKS or data.startswith(IN_MEMORY) or Path(data).exists():
            raise
        raise UserError(
            f"{error}; if you moved the data, set `data` in the run's config.toml to its new path"
        ) from None


def open_dataset(data: str, data_dir: Path) -> Dataset:
    """Open a benchmark, which is under `data_dir`, or user data at the path `data`."""
    if data.startswith(IN_MEMORY):
        raise UserError(
            f"{data}: this run was trained on data in memory, which openworld cannot open again; "
            "only openworld.train_on in Python, with the same data and resume=True, can continue it"
        )
    if data in BENCHMARKS:
        return read_benchmark(data, data_dir)
    if Path(data).exists():
        return read_own(Path(data))
    if "/" in data or data.endswith((".csv", ".npz")):
        raise UserError(f"{data}: no such folder, manifest (.csv) or .npz file; check the path")
    raise UserError(
        f"{data}: no such folder or file, and no such benchmark{did_you_mean(data, BENCHMARKS)} "
        f"(benchmarks: {', '.join(BENCHMARKS)})"
    )
