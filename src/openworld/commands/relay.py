"""openworld relay pack | unpack"""

import argparse
import json
from pathlib import Path

from openworld.commands.common import add_command, add_verbs, print_warning


def add(commands) -> None:
    verbs = add_verbs(commands, "relay", "Carry a run to another machine in a few small files (60 MB at most).")
    packing = add_command(verbs, "pack", run_pack, "Put what a run needs to go on into a new folder.")
    packing.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    packing.add_argument("folder", type=Path, metavar="FOLDER", help="where to put it: new, or empty")
    unpacking = add_command(verbs, "unpack", run_unpack, "Make a run of such a folder, to go on with.")
    unpacking.add_argument("folder", type=Path, metavar="FOLDER", help="what `openworld relay pack` made, all of it")
    unpacking.add_argument("run", type=Path, metavar="RUN", help="the run folder to make")


def run_pack(parsed: argparse.Namespace) -> int:
    from openworld.record import RunFolder
    from openworld.relay import pack

    step, steps = pack(RunFolder.open(parsed.run), parsed.folder, print_warning)
    files = {path.name: path.stat().st_size for path in sorted(parsed.folder.iterdir())}
    if parsed.json:
        print(json.dumps({"step": step, "steps": steps, "files": files}))
    else:
        print(f"step {step:,} of {steps:,}: {len(files)} files, {sum(files.values()) / 1e6:.1f} MB in {parsed.folder}")
        print("on the other machine, with all of them: openworld relay unpack FOLDER RUN")
    return 0


def run_unpack(parsed: argparse.Namespace) -> int:
    from openworld.record import RunFolder
    from openworld.relay import unpack

    step, steps = unpack(parsed.folder, parsed.run)
    if parsed.json:
        print(json.dumps({"step": step, "steps": steps, "run": str(parsed.run)}))
    else:
        print(f"step {step:,} of {steps:,}: the averaged model and momentum begin again")
        print(f"continue with: {RunFolder(parsed.run).resume_command}")
    return 0
