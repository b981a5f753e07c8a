"""What a relay costs: runs carried on from half of their steps against the same runs uninterrupted.

    python benchmarks/relay.py --seeds 0 1 2

Both are of the digits with their recipe. Each stopped run is stopped as a machine that is wanted back stops it, by a
signal, packed, unpacked and resumed. Writes results/relay-digits.json: the summaries and epochs of both.
"""

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path

from measure import RESULTS, commit, spread
from relay import pack, unpack

from openworld.compute.runtime import make_runtime
from openworld.core.config import Config
from openworld.core.config_files import write_toml
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.core.signals import Interrupted
from openworld.runs.environment import environment
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner
from openworld.training.loop import train

RUNTIME = make_runtime("cpu", quiet=True)
PARTS = ("seen", "novel", "all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    seeds = parser.parse_args().seeds
    runs: dict[str, list[dict]] = {"uninterrupted": [], "relayed": []}
    for seed in seeds:
        config = replace(digits("digits"), {"seed": seed})
        for way, made in (("uninterrupted", uninterrupted), ("relayed", relayed)):
            with tempfile.TemporaryDirectory() as folder:
                runs[way].append(made(config, Path(folder)))
            print(seed, way, *(f"{runs[way][-1][part]:.2f}" for part in PARTS), flush=True)
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(RUNTIME.device),
        "config": write_toml(digits("digits")),
        "seeds": seeds,
        "ways": {way: {part: spread([run[part] for run in made]) for part in PARTS} for way, made in runs.items()},
        "trials": runs,
    }
    (RESULTS / "relay-digits.json").write_text(json.dumps(content, indent=1) + "\n")


def uninterrupted(config: Config, folder: Path) -> dict:
    run = RunFolder(folder / "run")
    return {**train(config, run, RUNTIME), "epochs": run.metrics()}


def relayed(config: Config, folder: Path) -> dict:
    here, there = RunFolder(folder / "here"), RunFolder(folder / "there")
    stop_at(config.training.steps // 2, config, here)
    pack(here, folder / "relay", print)
    unpack(folder / "relay", there.path)
    return {**train(there.config(), there, RUNTIME), "epochs": there.metrics()}


def stop_at(step: int, config: Config, run: RunFolder) -> None:
    learn = Learner.learn

    def learn_and_be_stopped(learner: Learner) -> None:
        learn(learner)
        if learner.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    Learner.learn = learn_and_be_stopped
    try:
        train(config, run, RUNTIME)
    except Interrupted:
        pass
    finally:
        Learner.learn = learn


if __name__ == "__main__":
    main()
