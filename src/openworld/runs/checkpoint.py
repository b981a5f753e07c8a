"""Checkpoints: folders of safetensors and JSON files, written so that a checkpoint is either complete or absent.

`save` writes to a temporary folder, flushes it to disk, lists the hashes of all files in a manifest, and then renames
the folder. A crash at any point leaves the newest complete checkpoint unchanged. Checkpoints contain no pickle and no
clock times: two runs that made the same steps have byte-identical files.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from openworld.core.errors import UserError
from openworld.core.formats import CHECKPOINT_FORMAT, CHECKPOINT_UPGRADES, upgraded_part

KEEP = 2
"""Number of checkpoints to keep: the newest one, and the one before it in case the newest is damaged later."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files match their hashes."""

    path: Path
    step: int
    state: dict[str, Any]
    """Values that are not tensors, from state.json."""

    def tensors(self, part: str) -> dict[str, Tensor]:
        """Return the tensors of a part, converted to the current format if an older version wrote them."""

        def read(name: str) -> dict[str, Tensor]:
            return load_file(self.path / f"{name}.safetensors")

        return upgraded_part(part, read, self.state["format_version"])

    def load_into(self, module: nn.Module, part: str) -> None:
        """Load the tensors of a part into a module, or raise a UserError if they do not fit."""
        try:
            module.load_state_dict(self.tensors(part))
        except RuntimeError:
            misfit = "the weights do not fit the network of config.toml"
            raise UserError(f"{self.path}: {misfit}; if you edited config.toml, undo the edit") from None


class DamagedCheckpoint(Exception):
    """A file of a checkpoint is missing or has been changed."""


def save(folder: Path, step: int, parts: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> Path:
    """Write a checkpoint and return its folder. Delete older ones beyond KEEP once the new one is safely on disk."""
    target = folder / f"step-{step:08d}"
    aside = folder / f"{target.name}.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        for part, tensors in parts.items():
            content = to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()})
            (aside / f"{part}.safetensors").write_bytes(content)
        numbers = {"format_version": CHECKPOINT_FORMAT, "step": step, **state}
        (aside / "state.json").write_text(json.dumps(numbers, indent=1, sort_keys=True))
        hashes = {path.name: _sha256(path) for path in sorted(aside.iterdir())}
        (aside / "MANIFEST.json").write_text(json.dumps(hashes, indent=1))
        for path in [*aside.iterdir(), aside]:
            _flush(path)
        replaced = folder / f"{target.name}.old"
        if target.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            target.rename(replaced)
        aside.rename(target)
        _flush(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    # Delete only earlier steps. A later checkpoint must be damaged, or the run would have resumed from it.
    earlier = [path for path in newest_first(folder) if path.name < target.name]
    for old in [*earlier[KEEP - 1 :], *folder.glob("step-*.tmp"), *folder.glob("step-*.old")]:
        shutil.rmtree(old)
    return target


def load(path: Path) -> Checkpoint:
    """Return the checkpoint in a folder. Raise DamagedCheckpoint if a file does not match its hash."""
    try:
        hashes = json.loads((path / "MANIFEST.json").read_text())
        for name, expected in hashes.items():
            if _sha256(path / name) != expected:
                raise DamagedCheckpoint(f"{path / name} is damaged: its SHA-256 hash is not {expected}")
        state = json.loads((path / "state.json").read_text())
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{path} is damaged: {error}") from error
    version = state["format_version"]
    if version not in (*CHECKPOINT_UPGRADES, CHECKPOINT_FORMAT):
        readable = f"this version of openworld reads formats {min(CHECKPOINT_UPGRADES)} to {CHECKPOINT_FORMAT}"
        raise UserError(f"{path} has checkpoint format {version}, but {readable}; use another version")
    return Checkpoint(path, state["step"], state)


def newest_first(folder: Path) -> Iterator[Path]:
    """Yield the folders of all checkpoints, the highest step first."""
    yield from sorted(folder.glob("step-????????"), reverse=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
