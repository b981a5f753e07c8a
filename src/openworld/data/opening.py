"""From what a person names to a data set: a benchmark's name, a folder, a manifest or an .npz."""

from pathlib import Path

from openworld.core.errors import UserError, did_you_mean
from openworld.data.benchmarks import BENCHMARKS, read_benchmark
from openworld.data.dataset import Dataset
from openworld.data.own import read_own

IN_MEMORY = "memory:"
"""How the data of a run is named that came from Python, not from a place."""


def stable_name(data: str) -> str:
    """The same data by a name that holds in every working directory."""
    return data if data in BENCHMARKS or not Path(data).exists() else str(Path(data).absolute())


def reopen_dataset(data: str, data_dir: Path) -> Dataset:
    """The data of a run, which may have moved since."""
    try:
        return open_dataset(data, data_dir)
    except UserError as error:
        if data in BENCHMARKS or data.startswith(IN_MEMORY) or Path(data).exists():
            raise
        raise UserError(f"{error}; if the data of the run has moved, say where in its config.toml") from None


def open_dataset(data: str, data_dir: Path) -> Dataset:
    if data.startswith(IN_MEMORY):
        raise UserError(f"{data}: the run was made from data in memory, which cannot be found again")
    if data in BENCHMARKS:
        return read_benchmark(data, data_dir)
    if Path(data).exists():
        return read_own(Path(data))
    if "/" in data or data.endswith((".csv", ".npz")):
        raise UserError(f"{data}: there is no such folder, manifest or .npz")
    raise UserError(
        f"{data}: no such data set{did_you_mean(data, BENCHMARKS)} (there are {', '.join(BENCHMARKS)}; "
        "or name a folder, a manifest.csv or an .npz)"
    )
