"""Checkpoints: safetensors and JSON in a folder that is complete or not there.

Written aside, flushed to disk, listed with their hashes in a manifest, then renamed: a crash at any point
leaves the newest complete checkpoint as it was. No pickle, and no clock times: two runs that made the same
steps hold byte-identical files.
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
"""Checkpoints that stay: the newest, and one before it in case the newest is damaged later."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are as they were written."""

    path: Path
    step: int
    state: dict[str, Any]
    """Numbers that are not tensors."""

    def tensors(self, part: str) -> dict[str, Tensor]:
        """As this version has them, whichever wrote them."""

        def read(name: str) -> dict[str, Tensor]:
            return load_file(self.path / f"{name}.safetensors")

        return upgraded_part(part, read, self.state["format_version"])

    def load_into(self, module: nn.Module, part: str) -> None:
        try:
            module.load_state_dict(self.tensors(part))
        except RuntimeError:
            raise UserError(f"{self.path} does not fit the run's config.toml: was that edited?") from None


class DamagedCheckpoint(Exception):
    """A file of a checkpoint is missing or has changed."""


def save(folder: Path, step: int, parts: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> Path:
    """Write a checkpoint; older ones beyond KEEP go only when it is safely there."""
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
    # Only earlier steps go: a later one can only be damaged, or the run would have gone on from it.
    earlier = [path for path in newest_first(folder) if path.name < target.name]
    for old in [*earlier[KEEP - 1 :], *folder.glob("step-*.tmp"), *folder.glob("step-*.old")]:
        shutil.rmtree(old)
    return target


def load(path: Path) -> Checkpoint:
    """A checkpoint, its hashes checked."""
    try:
        hashes = json.loads((path / "MANIFEST.json").read_text())
        for name, expected in hashes.items():
            if _sha256(path / name) != expected:
                raise DamagedCheckpoint(f"{path / name} is damaged: its sha256 is not {expected}")
        state = json.loads((path / "state.json").read_text())
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{path} is damaged: {error}") from error
    version = state["format_version"]
    if version not in (*CHECKPOINT_UPGRADES, CHECKPOINT_FORMAT):
        readable = f"this openworld reads {min(CHECKPOINT_UPGRADES)} to {CHECKPOINT_FORMAT}"
        raise UserError(f"{path} has format {version}; {readable}: another version may read it")
    return Checkpoint(path, state["step"], state)


def newest_first(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("step-????????"), reverse=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Make sure that a file or a folder's entries are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
