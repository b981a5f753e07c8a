"""Make sample runs in the format that this version writes. Run it before you raise FORMAT or CHECKPOINT_FORMAT.

    python tests/formats/make.py tests/formats/2

`stopped` is a run that a signal stopped. `finished` started from features, and some of its classes have names.
`requested` was stopped while it learnt such features. `exported` is the weights with their model card. expected.json
holds the results of this version when it resumes the stopped runs.
"""

import json
import shutil
import signal
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from openworld.cli import main
from openworld.training.learner import Learner

SMALL = "--batch-labelled 16 --batch-unlabelled 32 --uncertainty-views 3 --device cpu --quiet"
STOPPED = "--steps 12 --epoch-steps 4 --uncertainty-from 0 --temperature 0.15"
TINY = "--recipe pretrained --network identity"
"""Few weights, because samples stay in the repository. Only the stopped run has a full network."""
FINISHED = f"{TINY} --start-steps 6 --steps 8 --epoch-steps 4 --queue 64 --queue-from 0.3 --projection 16"
REQUESTED = f"{TINY} --start-steps 8 --steps 4 --epoch-steps 2 --threshold 0.6"
SCORES = ("seen", "novel", "all", "nmi", "steps")


def run(command: str, *arguments: object) -> None:
    try:
        main([*command.split(), *map(str, arguments)])
    except SystemExit as ended:
        print(command, ended.code)


def stopped_at(step: int, method: str, command: str, *arguments: object) -> None:
    learn = Learner.learn

    def learn_and_stop(learner: Learner) -> None:
        learn(learner)
        if learner.step == step and type(learner.method).__name__ == method:
            signal.raise_signal(signal.SIGINT)

    Learner.learn = learn_and_stop
    run(command, *arguments)
    Learner.learn = learn


def keep_the_last_checkpoint(path: Path) -> None:
    for older in sorted((path / "checkpoints").glob("step-*"))[:-1]:
        shutil.rmtree(older)
    (path / "lock").unlink()


def make(folder: Path) -> None:
    torch.set_num_threads(1)
    stopped, finished, requested = (folder / name for name in ("stopped", "finished", "requested"))
    stopped_at(7, "Trssl", f"train {STOPPED} {SMALL} --out", stopped)
    run(f"train {FINISHED} {SMALL} --out", finished)
    run("name", finished, "novel-1=seven or so")
    run("export", finished, folder / "exported.safetensors")
    shutil.rmtree(finished / "simclr")
    stopped_at(5, "Simclr", f"train {REQUESTED} {SMALL} --out", requested)
    for path in (stopped, finished, requested / "simclr"):
        keep_the_last_checkpoint(path)
    outcomes = {path.name: outcome(path, folder / "temporary") for path in (stopped, requested)}
    (folder / "expected.json").write_text(json.dumps(outcomes, indent=1) + "\n")


def outcome(sample: Path, copy: Path) -> dict:
    shutil.copytree(sample, copy)
    run("train --resume --quiet --device cpu --out", copy)
    last = sorted((copy / "checkpoints").glob("step-*"))[-1]
    average, summary = load_file(last / "average.safetensors"), json.loads((copy / "summary.json").read_text())
    norms = {name: float(value.double().norm()) for name, value in average.items() if value.is_floating_point()}
    shutil.rmtree(copy)
    return {"norms": norms, "summary": {name: summary[name] for name in SCORES}}


if __name__ == "__main__":
    make(Path(sys.argv[1]))
