"""Check that a change leaves trained weights the same, bit for bit: train the same runs with two checkouts.

    git worktree add ../before COMMIT
    python benchmarks/same_weights.py seam ../before

All runs use one CPU thread. Two train on the digits with the full recipe. The others are short and cover recipes and
methods, images and features, and an estimated class count. Each checkout runs `openworld train` in its own process, so
the checkouts may have different module layouts. Writes results/same-weights-NAME.json: for each run and checkout a hash
of the last weights, student and averaged model. Exits with code 1 if any hashes differ.
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from before_after import head_of
from measure import RESULTS, commit
from safetensors.torch import load_file

from openworld.runs.environment import environment

SHORT = "--epoch-steps 5 --uncertainty-views 3"
AS_CIFAR = "PLACE/large.npz --steps 2 --batch-labelled 8 --batch-unlabelled 16 --network resnet18-cifar"
NO_SWITCH = "--no-mixup --no-mixed-labels --no-cross-labels --no-uncertainty"
RUNS = {
    "digits, whole": "digits",
    "digits, whole, seed 1": "digits --seed 1",
    "digits, uncertainty from the start": f"digits --steps 20 --uncertainty-from 0 {SHORT}",
    "digits, fast with Muon and a queue": f"digits --recipe fast --steps 20 --muon 0.01 --queue 256 {SHORT}",
    "digits, pretrained": f"digits --recipe pretrained --steps 12 --start-steps 12 {SHORT}",
    "digits, simclr with Muon": f"digits --method simclr --steps 20 --muon 0.02 {SHORT}",
    "digits, every switch off": f"digits --steps 12 {NO_SWITCH} {SHORT}",
    "own features": f"PLACE/features.npz --num-classes 6 --steps 30 {SHORT}",
    "own images": f"PLACE/small.npz --num-classes 6 --steps 10 {SHORT}",
    "own images, counted": f"PLACE/small.npz --num-classes auto --start simclr --start-steps 12 --steps 10 {SHORT}",
    "ResNet-18, paper": f"{AS_CIFAR} --recipe paper {SHORT}",
    "ResNet-18, fast": f"{AS_CIFAR} --recipe fast {SHORT}",
    "ResNet-18, pretrained": f"{AS_CIFAR} --recipe pretrained --start-steps 2 {SHORT}",
}
CENTRES = ("head.weight", "head.classes.weight")
"""Names of the tensor that holds the class vectors of a head."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="NAME of the result file")
    parser.add_argument("before", type=Path, help="a checkout of the code before the change")
    options = parser.parse_args()
    checkouts = {"before": options.before.absolute(), "after": Path(__file__).parent.parent.absolute()}
    runs = {}
    with tempfile.TemporaryDirectory() as temporary:
        write_data(Path(temporary))
        for label, flags in RUNS.items():
            command = flags.replace("PLACE", temporary)
            hashes = {
                name: last_weights(checkout, command, Path(temporary) / f"{len(runs)}{name}")
                for name, checkout in checkouts.items()
            }
            runs[label] = {"flags": flags, **hashes, "same": hashes["before"] == hashes["after"]}
            print("same     " if runs[label]["same"] else "DIFFERENT", label, flush=True)
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "before": head_of(checkouts["before"]),
        "environment": environment(torch.device("cpu")),
        "compared": runs,
    }
    (RESULTS / f"same-weights-{options.name}.json").write_text(json.dumps(content, indent=1) + "\n")
    sys.exit(not all(run["same"] for run in runs.values()))


def write_data(folder: Path) -> None:
    """Write small images and features of six classes, three of them with labels, and noise of the size of CIFAR."""
    draw, truth = np.random.default_rng(0), np.arange(600) % 6
    labels = np.where((truth < 3) & (np.arange(600) < 200), truth, -1)
    features = 3 * draw.normal(size=(6, 24))[truth] + draw.normal(size=(600, 24))
    small = 128 + 60 * draw.normal(size=(6, 16, 16, 3))[truth] + 30 * draw.normal(size=(600, 16, 16, 3))
    np.savez(folder / "features.npz", features=features.astype(np.float32), labels=labels)
    np.savez(folder / "small.npz", images=np.clip(small, 0, 255).astype(np.uint8), labels=labels)
    np.savez(folder / "large.npz", images=draw.integers(0, 256, (300, 32, 32, 3), np.uint8), labels=np.arange(300) % 10)


def last_weights(checkout: Path, flags: str, out: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "openworld",
        "train",
        *flags.split(),
        "--out",
        str(out),
        "--quiet",
        "--device",
        "cpu",
    ]
    variables = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=variables, cwd="/", check=True, stdout=subprocess.DEVNULL)
    last, digest = sorted((out / "checkpoints").glob("step-*"))[-1], hashlib.sha256()
    for part in ("model", "average"):
        tensors = load_file(last / f"{part}.safetensors")
        for name in sorted(name for name in tensors if name.startswith("body.")):
            digest.update(tensors[name].numpy().tobytes())
        # The checkouts may name the parts of a head differently. The class vectors are enough.
        digest.update(next(value for name, value in tensors.items() if name in CENTRES).numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
