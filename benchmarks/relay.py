"""Carry an unfinished run to another machine in a few small files.

    python benchmarks/relay.py pack RUN FOLDER      # at most 60 MB, in files of at most 15 MB, with their sha256
    python benchmarks/relay.py unpack FOLDER RUN    # on the other machine: a run folder again, ready to resume
    openworld train --resume --out RUN

The script is for machines that are lent for less time than a run takes and that let only small files through. If you
can copy the whole run folder, copy it instead: a copied run continues bit for bit. A relay carries the student's
weights, the method's state and the run's small files unchanged. It leaves out the averaged model, which restarts as a
copy of the student, and the momentum, which restarts at zero. The run's summary records the step (`relayed`).
"""

import argparse
import hashlib
import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load as from_bytes

from openworld.commands.common import print_warning
from openworld.core.errors import UserError
from openworld.core.files import write_whole
from openworld.core.formats import CHECKPOINT_FORMAT, CHECKPOINT_UPGRADES
from openworld.runs import checkpoint
from openworld.runs.classes import NAMES
from openworld.runs.folder import START, RunFolder

MAX_FILE_BYTES, MAX_TOTAL_BYTES = 15_000_000, 60_000_000
"""What machines that are lent by the minute let through. So a relay is at most four pieces and the manifest."""
FORMAT = 1
"""Format of the relay. In the manifest a dot and the format of the checkpoint follow."""
MANIFEST, ARCHIVE = "relay.json", "relay.zip"
CHECKPOINT_FILES = ("model.safetensors", "method.safetensors", "state.json")
RUN_FILES = ("split.json", "metrics.jsonl", "environment.json", "estimate.json", START, NAMES, "config.toml")
"""Packed if they exist, and written in this order. config.toml is last, because a folder with it is a run."""


class Stage(NamedTuple):
    """Progress of a run."""

    step: int
    steps: int


def pack(run: RunFolder, folder: Path, warn: Callable[[str], None]) -> Stage:
    """Write the newest undamaged checkpoint of a run into a new folder, without averaged model and momentum."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder; choose a new or empty folder for the relay")
    steps = run.config().training.steps
    run.split_and_facts()  # report a damaged run here, not on the other machine
    saved = run.newest_checkpoint(warn)
    if saved is None:
        raise UserError(f"{run.path} has no undamaged checkpoint, so there is nothing to pack; train it first")
    if saved.step == steps:
        warn(f"{run.path} is finished: copy its folder instead. A relay recomputes the results from the student")
    paths = [saved.path / name for name in CHECKPOINT_FILES] + [run.path / name for name in RUN_FILES]
    archive = zipped(path for path in paths if path.exists())
    files = cut(archive)
    hashes = {name: sha256(content) for name, content in files.items()}
    written_format = f"{FORMAT}.{saved.state['format_version']}"
    manifest = {"format": written_format, "step": saved.step, "sha256": sha256(archive), "pieces": hashes}
    files[MANIFEST] = (json.dumps(manifest, indent=1) + "\n").encode()  # last: without it the folder is not a relay
    size = sum(map(len, files.values()))
    if size > MAX_TOTAL_BYTES:
        excess = f"{(size - MAX_TOTAL_BYTES) / 1e6:.2f} MB over the limit of {MAX_TOTAL_BYTES / 1e6:.0f} MB"
        raise UserError(f"{run.path} is too large for a relay, {excess}; copy the whole run folder instead")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_whole(folder / name, content)
    return Stage(saved.step, steps)


def unpack(folder: Path, path: Path) -> Stage:
    """Create a run folder from a relay. Training resumes from its checkpoint as from any other."""
    contents = unzipped(joined(folder))
    state = json.loads(contents["state.json"])
    student, method = (from_bytes(contents[f"{part}.safetensors"]) for part in ("model", "method"))
    parts = {"model": student, "average": student, "optimizer": {}, "method": method}
    state["relayed"] = [*state.get("relayed", []), state["step"]]
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"{path} exists already; choose a new folder for the run") from None
    run = RunFolder(path)
    try:
        checkpoint.save(run.checkpoints, state["step"], parts, state)
        for name in RUN_FILES:
            if name in contents:
                run.write(name, contents[name])
        steps = run.config().training.steps
    except BaseException:
        shutil.rmtree(path)
        raise
    return Stage(state["step"], steps)


def joined(folder: Path) -> bytes:
    """Return the archive of a relay. Raise a UserError if a piece is missing or damaged."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise UserError(f"{folder} is not a relay: it has no {MANIFEST}")
    try:
        entries = json.loads(manifest.read_bytes())
        written_format, archive_hash, hashes = entries["format"], entries["sha256"], dict(entries["pieces"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{manifest} is damaged; copy it again") from None
    readable = [f"{FORMAT}.{version}" for version in (*CHECKPOINT_UPGRADES, CHECKPOINT_FORMAT)]
    if written_format not in readable:
        reads = f"this openworld reads {' and '.join(readable)}"
        raise UserError(f"{manifest} has format {written_format}, but {reads}; use the version that packed it")
    missing = [name for name in hashes if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{folder} lacks {', '.join(missing)}; copy all {len(hashes) + 1} files of the relay")
    pieces = {name: (folder / name).read_bytes() for name in hashes}
    for name, content in pieces.items():
        if sha256(content) != hashes[name]:
            raise UserError(f"{folder / name} is damaged: its sha256 is not {hashes[name]}. Copy it again")
    archive = b"".join(pieces.values())
    if sha256(archive) != archive_hash:
        raise UserError(f"{manifest} is damaged: its pieces do not make up the archive. Copy it again")
    return archive


def cut(archive: bytes) -> dict[str, bytes]:
    """Cut an archive into pieces of at most MAX_FILE_BYTES, by file name."""
    starts = range(0, len(archive), MAX_FILE_BYTES)
    return {
        f"{ARCHIVE}.{number}": archive[start : start + MAX_FILE_BYTES] for number, start in enumerate(starts, start=1)
    }


def zipped(paths: Iterable[Path]) -> bytes:
    """Return a zip archive of files without folders and time stamps: the same files give the same bytes."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path in paths:
            file.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def unzipped(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {name: file.read(name) for name in file.namelist()}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="verb", required=True)
    packing = commands.add_parser("pack", help="write the files that a run needs to continue into a new folder")
    packing.add_argument("run", type=Path, help="the run folder")
    packing.add_argument("folder", type=Path, help="a new or empty folder")
    unpacking = commands.add_parser("unpack", help="create a run folder from a packed folder")
    unpacking.add_argument("folder", type=Path, help="the packed folder")
    unpacking.add_argument("run", type=Path, help="the new run folder")
    parsed = parser.parse_args(arguments)
    try:
        if parsed.verb == "pack":
            step, steps = pack(RunFolder.open(parsed.run), parsed.folder, print_warning)
            sizes = [path.stat().st_size for path in parsed.folder.iterdir()]
            print(f"step {step:,} of {steps:,}: {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB in {parsed.folder}")
        else:
            step, steps = unpack(parsed.folder, parsed.run)
            print(f"step {step:,} of {steps:,}; continue with: {RunFolder(parsed.run).resume_command}")
    except UserError as error:
        sys.exit(f"relay: {error}")


if __name__ == "__main__":
    main()
