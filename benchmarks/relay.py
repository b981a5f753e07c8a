"""Carry an unfinished run to another machine in a few small files.

    python benchmarks/relay.py pack RUN FOLDER      # at most 60 MB, in files of at most 15 MB, with their sha256
    python benchmarks/relay.py unpack FOLDER RUN    # on the other machine: a run folder again
    openworld train --resume --out RUN

For machines that are lent for less time than a run takes, and that let little through. Where you can copy the whole
run folder, copy it instead: a copied run continues bit for bit. A relay carries the student's weights, the method's
state and the run's small files unchanged. It leaves out the averaged model, which restarts as the student, and the
momentum, which restarts at zero. The run's summary records the step (`relayed`).
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

MOST_OF_A_FILE, MOST_OF_ALL = 15_000_000, 60_000_000
"""Bytes: what a machine that is lent by the minute lets through. So there are at most four pieces and the manifest."""
FORMAT = 1
"""Of the relay; that of the checkpoint in it follows, after a dot."""
MANIFEST, ARCHIVE = "relay.json", "relay.zip"
OF_THE_CHECKPOINT = ("model.safetensors", "method.safetensors", "state.json")
OF_THE_RUN = ("split.json", "metrics.jsonl", "environment.json", "estimate.json", START, NAMES, "config.toml")
"""Those that there are, in the order of writing: config.toml is last, since it makes a folder a run."""


class Stage(NamedTuple):
    """How far a run has come."""

    step: int
    steps: int


def pack(run: RunFolder, folder: Path, warn: Callable[[str], None]) -> Stage:
    """Write the newest sound checkpoint of a run, less what can be done without, into a folder of its own."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder: choose another one for the relay")
    steps = run.config().training.steps
    run.split_and_facts()  # damage is better told of here than on the other machine
    saved = run.newest_checkpoint(warn)
    if saved is None:
        raise UserError(f"{run.path} has no sound checkpoint: there is nothing to carry yet")
    if saved.step == steps:
        warn(f"{run.path} is finished: copy it whole, since its relay makes its results anew, from the student")
    paths = [saved.path / name for name in OF_THE_CHECKPOINT] + [run.path / name for name in OF_THE_RUN]
    archive = zipped(path for path in paths if path.exists())
    files = cut(archive)
    hashes = {name: sha256(content) for name, content in files.items()}
    made_as = f"{FORMAT}.{saved.state['format_version']}"
    manifest = {"format": made_as, "step": saved.step, "sha256": sha256(archive), "pieces": hashes}
    files[MANIFEST] = (json.dumps(manifest, indent=1) + "\n").encode()  # last: without it, the folder is no relay
    size = sum(map(len, files.values()))
    if size > MOST_OF_ALL:
        over = f"{(size - MOST_OF_ALL) / 1e6:.2f} MB more than the {MOST_OF_ALL / 1e6:.0f} MB of a relay"
        raise UserError(f"{run.path} takes {over}: copy the whole run instead")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_whole(folder / name, content)
    return Stage(saved.step, steps)


def unpack(folder: Path, path: Path) -> Stage:
    """Make a run of a relay, with a checkpoint like any other, from which training goes on."""
    contents = unzipped(joined(folder))
    state = json.loads(contents["state.json"])
    student, method = (from_bytes(contents[f"{part}.safetensors"]) for part in ("model", "method"))
    parts = {"model": student, "average": student, "optimizer": {}, "method": method}
    state["relayed"] = [*state.get("relayed", []), state["step"]]
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"{path} exists already: choose a new folder for the run") from None
    run = RunFolder(path)
    try:
        checkpoint.save(run.checkpoints, state["step"], parts, state)
        for name in OF_THE_RUN:
            if name in contents:
                run.write(name, contents[name])
        steps = run.config().training.steps
    except BaseException:
        shutil.rmtree(path)
        raise
    return Stage(state["step"], steps)


def joined(folder: Path) -> bytes:
    """The archive of a relay, whose pieces are all there, and as they were written."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise UserError(f"{folder} is no relay: it has no {MANIFEST}")
    try:
        known = json.loads(manifest.read_bytes())
        made_as, whole, hashes = known["format"], known["sha256"], dict(known["pieces"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{manifest} is damaged: carry it again") from None
    readable = [f"{FORMAT}.{version}" for version in (*CHECKPOINT_UPGRADES, CHECKPOINT_FORMAT)]
    if made_as not in readable:
        raise UserError(f"{manifest} has format {made_as}; this openworld reads format {' and '.join(readable)}")
    missing = [name for name in hashes if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{folder} lacks {', '.join(missing)}: carry all of its {len(hashes) + 1} files")
    pieces = {name: (folder / name).read_bytes() for name in hashes}
    for name, content in pieces.items():
        if sha256(content) != hashes[name]:
            raise UserError(f"{folder / name} is damaged: its sha256 is not {hashes[name]}; carry it again")
    archive = b"".join(pieces.values())
    if sha256(archive) != whole:
        raise UserError(f"{manifest} is damaged: its pieces do not make a whole; carry it again")
    return archive


def cut(archive: bytes) -> dict[str, bytes]:
    """An archive as files that are small enough, by their names."""
    starts = range(0, len(archive), MOST_OF_A_FILE)
    return {
        f"{ARCHIVE}.{number}": archive[start : start + MOST_OF_A_FILE] for number, start in enumerate(starts, start=1)
    }


def zipped(paths: Iterable[Path]) -> bytes:
    """Without folders and clock times: the same files give the same bytes."""
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
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack", help="write what a run needs to continue into a new folder")
    packing.add_argument("run", type=Path)
    packing.add_argument("folder", type=Path, help="a new or empty folder")
    unpacking = verbs.add_parser("unpack", help="make a run folder from such a folder")
    unpacking.add_argument("folder", type=Path)
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
