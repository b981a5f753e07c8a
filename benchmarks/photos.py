"""Measure what a training step costs on photos of 224 pixels, and what limits it.

    python benchmarks/photos.py FOLDER [--device cuda]

FOLDER holds JPEG photos. The script lists each photo several times until there are enough. For ResNet-18 with the
paper's batch and for ResNet-50 with a batch of 512 it measures a step with all images on the device (where `openworld
train` keeps every set that fits), a step with images that workers decode from files on request, and the rate of the
workers alone. Writes benchmarks/results/photos-{cpu|cuda}.json after every measurement.
"""

import argparse
import dataclasses
import functools
import json
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, commit

from openworld.compute.cuda_graphs import CALLS_BEFORE_CAPTURE
from openworld.compute.device import synchronize
from openworld.compute.runtime import Runtime, make_runtime
from openworld.core.fields import replace
from openworld.core.recipes import paper
from openworld.data.batches import Batches, View, Views
from openworld.data.dataset import Dataset, Files, Part
from openworld.data.problem import OpenWorld, load_problem
from openworld.runs.environment import environment
from openworld.training.learner import Learner
from openworld.training.timing import seconds_of

CASES = (("resnet18", "oxford-pets", {}), ("resnet50", "imagenet100", {}))
"""Network, the benchmark whose recipe it follows, and changed settings."""
FIRST = 4
"""Number of batches that fill the read-ahead and are not timed."""
SMALL = {"network": "small-64", "batch_labelled": 16, "batch_unlabelled": 16}
"""Settings to try the script on a CPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of JPEG photos")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result file")
    parser.add_argument("--compile", default="auto", help="auto, on or off")
    parser.add_argument(
        "--networks", nargs="+", default=[network for network, _, _ in CASES], help="networks to measure"
    )
    options = parser.parse_args()
    cases = CASES if torch.cuda.is_available() else (("small-64", "oxford-pets", SMALL),)
    content = {"command": f"python {shlex.join(sys.argv)}", "commit": commit(), "cases": {}}
    for network, benchmark, settings in cases:
        if network not in options.networks and cases is CASES:
            continue
        runtime = make_runtime(options.device, compile=options.compile, quiet=True)
        config = replace(paper(benchmark), {"labelled": 10.0, **settings})
        rows = config.training.batch_labelled + config.training.batch_unlabelled
        dataset = photos(options.folder, 3 * rows)
        case = content["cases"][network] = {"batch": rows, "workers": runtime.workers, "compiled": runtime.compile}
        content["environment"] = environment(runtime.device)
        for name, memory in (("resident", 2**62), ("streamed", 0)):
            load = functools.partial(load_problem, config, dataclasses.replace(runtime, memory=memory), dataset=dataset)
            world = load()
            if name == "streamed":
                decode_every_time(world)
                case["loader_samples_per_s"] = loader_rate(config, decode_every_time(load()))
            case[name] = measure(config, world, runtime)
            options.results.mkdir(parents=True, exist_ok=True)
            path = options.results / f"photos-{runtime.device.type}.json"
            path.write_text(json.dumps(content, indent=1) + "\n")
            print(network, name, json.dumps(case), flush=True)


def photos(folder: Path, count: int) -> Dataset:
    names = sorted(path.name for path in folder.glob("*.jpg"))
    paths = tuple(names[number % len(names)] for number in range(count))
    labels = np.arange(count) % 10
    return Dataset("photos", tuple("abcdefghij"), Part(Files(folder, paths), labels), None)


def decode_every_time(world: OpenWorld) -> OpenWorld:
    """Make workers decode every sample of a world at every use, as if there were no cache, and return the world."""
    for samples in (world.training.labelled, world.training.unlabelled):
        samples.items = [dataclasses.replace(item, row=None) for item in samples.items]
    return world


def loader_rate(config, world: OpenWorld, steps: int = 10) -> float:
    """Return how many samples a second workers deliver when no training uses them. A sample counts once."""
    batches = Batches(world.training, config.training, config.seed, Views(unlabelled=(View(),)))
    for step in range(FIRST):
        batches.draw(step)
    began = time.perf_counter()
    for step in range(FIRST, FIRST + steps):
        batches.draw(step)
    synchronize(world.training.device)
    return steps * (config.training.batch_labelled + config.training.batch_unlabelled) / (time.perf_counter() - began)


def measure(config, world: OpenWorld, runtime: Runtime) -> dict[str, float]:
    learner = Learner(config, world.training, runtime)
    began = time.perf_counter()
    for _ in range(CALLS_BEFORE_CAPTURE + FIRST):
        learner.learn()
    synchronize(runtime.device)
    set_up_s = time.perf_counter() - began
    step_s = seconds_of(learner.learn, runtime.device, times=4)
    images = config.training.batch_labelled + config.training.batch_unlabelled
    result = {"step_ms": 1000 * step_s, "samples_per_s": images / step_s, "set_up_s": set_up_s}
    if runtime.device.type == "cuda":
        result["peak_memory_gib"] = torch.cuda.max_memory_reserved() / 2**30
        del learner
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return result


if __name__ == "__main__":
    main()
