"""Measure what a relay costs: compare runs that are relayed after half of their steps with uninterrupted runs.

    python benchmarks/relay_cost.py --seeds 0 1 2

All runs train on the digits with their recipe. A signal stops each relayed run, as on a machine that its owner takes
back. Then the script packs, unpacks and resumes the run. Writes results/relay-digits.json: the summaries and epochs of
all runs.
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
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="random seeds")
    seeds = parser.parse_args().seeds
    runs: dict[str, list[dict]] = {"uninterrupted": [], "relayed": []}
    for seed in seeds:
        config = replace(digits("digits"), {"seed": seed})
        for way, train_one in (("uninterrupted", uninterrupted), ("relayed", relayed)):
            with tempfile.TemporaryDirectory() as folder:
                runs[way].append(train_one(config, Path(folder)))
            print(seed, way, *(f"{runs[way][-1][part]:.2f}" for part in PARTS), flush=True)
    content = {
        "command": f"python {shlex.join(sys.argv)}",
        "commit": commit(),
        "environment": environment(RUNTIME.device),
        "config": write_toml(digits("digits")),
        "seeds": seeds,
        "ways": {way: {part: spread([run[part] for run in group]) for part in PARTS} for way, group in runs.items()},
        "trials": runs,
    }
    (RESULTS / "relay-digits.json").write_text(json.dumps(content, indent=1) + "\n")


def uninterrupted(config: Config, folder: Path) -> dict:
    run = RunFolder(folder / "run")
    return {**train(config, run, RUNTIME), "epochs": run.metrics()}


def relayed(config: Config, folder: Path) -> dict:
    stopped, resumed = RunFolder(folder / "stopped"), RunFolder(folder / "resumed")
    stop_at(config.training.steps // 2, config, stopped)
    pack(stopped, folder / "relay", print)
    unpack(folder / "relay", resumed.path)
    return {**train(resumed.config(), resumed, RUNTIME), "epochs": resumed.metrics()}


def stop_at(step: int, config: Config, run: RunFolder) -> None:
    learn = Learner.learn

    def learn_and_stop(learner: Learner) -> None:
        learn(learner)
        if learner.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    Learner.learn = learn_and_stop
    try:
        train(config, run, RUNTIME)
    except Interrupted:
        pass
    finally:
        Learner.learn = learn


if __name__ == "__main__":
    main()
